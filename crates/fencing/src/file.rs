//! A fenced file: its fence lies beside it, and is compared under a lock that lasts as long as the access.

use crate::fence::{Fence, Refused, Stale};
use lockkeeper_core::Token;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

/// A file that refuses stale tokens. The fence is in `NAME.fence` beside it, and is never removed.
///
/// Between the processes of one machine; every access must go this way, reads included. Calls block: the lock (flock)
/// is held just for one read or write of the file.
///
/// ```
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("report");
/// use lockkeeper_core::Token;
/// use lockkeeper_fencing::file::FencedFile;
/// let report = FencedFile::at(path);
/// let (first, second) = (Token(1), Token(2)); // of two holders of one lock
/// assert_eq!(report.read(first).unwrap(), b"");
/// assert_eq!(report.read(second).unwrap(), b""); // the read raises the fence
/// assert!(report.write(first, b"late").unwrap_err().is_stale());
/// report.write(second, b"in time").unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct FencedFile {
    path: PathBuf,
    fence: PathBuf,
}

impl FencedFile {
    /// The file at this path; it need not be there yet, its directory must be.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let fence = beside(&path, ".fence");
        Self { path, fence }
    }

    /// Reads all of it; a file that is not there is empty. Raises the fence.
    ///
    /// # Errors
    /// [`Refused::Stale`] if a later holder has been here.
    pub fn read(&self, token: Token) -> Result<Vec<u8>, Refused<io::Error>> {
        self.pass(token, || self.content())
    }

    /// Replaces all of it, in one step: after a crash there is the old or the new content. Raises the fence.
    ///
    /// # Errors
    /// [`Refused::Stale`] if a later holder has been here.
    pub fn write(&self, token: Token, content: &[u8]) -> Result<(), Refused<io::Error>> {
        self.pass(token, || self.replace(content))
    }

    /// Reads, changes and replaces it while nobody else can.
    ///
    /// # Errors
    /// [`Refused::Stale`] if a later holder has been here.
    pub fn update(
        &self,
        token: Token,
        change: impl FnOnce(Vec<u8>) -> Vec<u8>,
    ) -> Result<(), Refused<io::Error>> {
        self.pass(token, || self.replace(&change(self.content()?)))
    }

    /// Compares, raises the fence and runs the access, all under the fence file's lock.
    fn pass<T>(&self, token: Token, access: impl FnOnce() -> io::Result<T>) -> Result<T, Refused<io::Error>> {
        let mut file = self.lock().map_err(Refused::Resource)?;
        let mut fence = read_fence(&mut file).map_err(Refused::Resource)?;
        let before = fence;
        fence.admit(token).map_err(|stale: Stale| Refused::Stale(stale))?;
        if fence != before {
            write_fence(&mut file, token).map_err(Refused::Resource)?;
        }
        access().map_err(Refused::Resource)
    }

    fn lock(&self) -> io::Result<File> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&self.fence)?;
        file.lock()?;
        Ok(file)
    }

    fn content(&self) -> io::Result<Vec<u8>> {
        match std::fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            content => content,
        }
    }

    fn replace(&self, content: &[u8]) -> io::Result<()> {
        let new = beside(&self.path, ".new");
        let mut file = File::create(&new)?;
        file.write_all(content)?;
        file.sync_data()?;
        std::fs::rename(new, &self.path)
    }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

/// The digits of a token, always as many, so that a larger one overwrites a smaller one in a single write.
fn digits(token: Token) -> String {
    format!("{token:020}\n")
}

fn read_fence(file: &mut File) -> io::Result<Fence> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    if text.is_empty() {
        return Ok(Fence::default());
    }
    let bad =
        |_| io::Error::new(io::ErrorKind::InvalidData, format!("the fence file holds no token: {text:?}"));
    Ok(Fence::at(Token(text.trim().parse().map_err(bad)?)))
}

fn write_fence(file: &mut File, token: Token) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(digits(token).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_holder_can_neither_read_nor_write() {
        let directory = tempfile::tempdir().unwrap();
        let file = FencedFile::at(directory.path().join("stock"));
        file.write(Token(7), b"7 left").unwrap();
        assert_eq!(file.read(Token(7)).unwrap(), b"7 left");
        assert_eq!(file.read(Token(1_762_000_000_000_000)).unwrap(), b"7 left");
        assert!(file.read(Token(7)).unwrap_err().is_stale());
        assert!(file.write(Token(8), b"lost").unwrap_err().is_stale());
        assert!(file.update(Token(9), |_| Vec::new()).unwrap_err().is_stale());
        assert_eq!(std::fs::read(directory.path().join("stock")).unwrap(), b"7 left");
    }

    #[test]
    fn a_damaged_fence_lets_nobody_pass() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("stock.fence"), "garbage").unwrap();
        let error = FencedFile::at(directory.path().join("stock")).read(Token(1)).unwrap_err();
        assert!(matches!(error, Refused::Resource(_)), "{error}");
    }
}
