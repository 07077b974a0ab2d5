//! Jute, ZooKeeper's encoding: big-endian numbers, and lengths before texts and lists. Only here the protocol is ours.

/// Appends values in Jute's encoding.
#[derive(Debug, Default, Clone)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn bool(&mut self, value: bool) {
        self.0.push(value.into());
    }

    pub(crate) fn int(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn long(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) {
        // Longer ones than the server takes are refused there; i32::MAX is far beyond that.
        self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.0.extend_from_slice(value);
    }

    pub(crate) fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    pub(crate) fn texts<'a>(&mut self, values: impl ExactSizeIterator<Item = &'a str>) {
        self.int(i32::try_from(values.len()).unwrap_or(i32::MAX));
        values.for_each(|value| self.text(value));
    }
}

/// The bytes end before the value does, or are none of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the server sent something that is not ZooKeeper's protocol")]
pub(crate) struct Garbled;

/// Takes values off the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], Garbled> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Garbled)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        self.take(N)?.try_into().map_err(|_| Garbled)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Garbled> {
        Ok(self.array::<1>()?[0] != 0)
    }

    pub(crate) fn int(&mut self) -> Result<i32, Garbled> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(crate) fn long(&mut self) -> Result<i64, Garbled> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// A length of -1 means nothing at all, which is read as empty.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Garbled> {
        match self.int()? {
            -1 => Ok(&[]),
            length => self.take(usize::try_from(length).map_err(|_| Garbled)?),
        }
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Garbled> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Garbled)
    }

    pub(crate) fn texts(&mut self) -> Result<Vec<String>, Garbled> {
        let count = self.int()?.max(0);
        (0..count).map(|_| self.text().map(str::to_owned)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let mut writer = Writer::default();
        writer.bool(true);
        writer.int(-7);
        writer.long(i64::MIN);
        writer.text("größe");
        writer.texts(["a", ""].into_iter());
        let mut reader = Reader(&writer.0);
        assert_eq!(reader.bool(), Ok(true));
        assert_eq!(reader.int(), Ok(-7));
        assert_eq!(reader.long(), Ok(i64::MIN));
        assert_eq!(reader.text(), Ok("größe"));
        assert_eq!(reader.texts(), Ok(vec!["a".into(), String::new()]));
        assert_eq!(reader.int(), Err(Garbled));
    }

    #[test]
    fn a_length_beyond_the_end_is_no_panic() {
        let mut writer = Writer::default();
        writer.int(i32::MAX);
        assert_eq!(Reader(&writer.0).bytes(), Err(Garbled));
        assert_eq!(Reader(&writer.0).texts(), Err(Garbled));
    }
}
