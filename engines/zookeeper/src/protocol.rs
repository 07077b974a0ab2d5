//! The few requests and replies of ZooKeeper's protocol that locks need. Only here the protocol is ours: no
//! driver sends a create and a look in one write.

use crate::jute::{Garbled, Reader, Writer};

/// Numbers of messages that are no reply to a numbered request.
pub(crate) const XID_EVENT: i32 = -1;
pub(crate) const XID_AUTH: i32 = -4;
pub(crate) const XID_SET_WATCHES: i32 = -8;

const OP_CREATE_STEP: i32 = 1;
const OP_DELETE: i32 = 2;
const OP_EXISTS: i32 = 3;
const OP_GET_DATA: i32 = 4;
const OP_SET_DATA: i32 = 5;
const OP_GET_CHILDREN: i32 = 8;
const OP_SYNC: i32 = 9;
const OP_CHECK: i32 = 13;
const OP_MULTI: i32 = 14;
/// Replies with the node's stat, but not as a step of a multi: there the server replies as to the older one.
const OP_CREATE: i32 = 15;
const OP_CREATE_CONTAINER: i32 = 19;
const OP_MULTI_READ: i32 = 22;
const OP_AUTH: i32 = 100;
const OP_SET_WATCHES: i32 = 101;
const OP_GET_EPHEMERALS: i32 = 103;
const OP_CLOSE: i32 = -11;
const ANY_VERSION: i32 = -1;

/// What kind of node to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Ephemeral,
    EphemeralSequential,
    /// Removed by the server some time after its last child.
    Container,
}

/// Who may do what with a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl {
    pub(crate) permissions: i32,
    pub(crate) scheme: &'static str,
    pub(crate) id: &'static str,
}

/// What the server says of a node; only what locks need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The transaction that created it: grows for ever, the fencing token.
    pub(crate) czxid: i64,
    /// The transaction that changed its data last.
    pub(crate) mzxid: i64,
    /// When it was created, in milliseconds of the server's wall clock.
    pub(crate) ctime_ms: i64,
    /// When its data was changed last, likewise.
    pub(crate) mtime_ms: i64,
    pub(crate) version: i32,
    /// The session it lives and dies with; zero if it is not ephemeral.
    pub(crate) ephemeral_owner: i64,
    /// How many nodes are right below it.
    pub(crate) children: i32,
}

/// A node that was just created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Created {
    /// Its whole path, with the sequence the server appended.
    pub(crate) path: String,
    pub(crate) stat: Stat,
}

/// A request, encoded, with its number left open.
#[derive(Debug, Clone)]
pub(crate) struct Request(Writer);

impl Request {
    fn new(xid: i32, operation: i32) -> Self {
        let mut writer = Writer::default();
        writer.int(0);
        writer.int(xid);
        writer.int(operation);
        Self(writer)
    }

    pub(crate) fn create(path: &str, data: &[u8], acl: &[Acl], mode: Mode) -> Self {
        let operation = if mode == Mode::Container { OP_CREATE_CONTAINER } else { OP_CREATE };
        let mut request = Self::new(0, operation);
        create(&mut request.0, path, data, acl, mode);
        request
    }

    pub(crate) fn delete(path: &str) -> Self {
        let mut request = Self::new(0, OP_DELETE);
        request.0.text(path);
        request.0.int(ANY_VERSION);
        request
    }

    pub(crate) fn exists(path: &str) -> Self {
        let mut request = Self::new(0, OP_EXISTS);
        request.0.text(path);
        request.0.bool(false);
        request
    }

    pub(crate) fn data(path: &str, watch: bool) -> Self {
        let mut request = Self::new(0, OP_GET_DATA);
        request.0.text(path);
        request.0.bool(watch);
        request
    }

    /// Replaces the data of a node that still has the data it was created with.
    pub(crate) fn replace(path: &str, data: &[u8]) -> Self {
        const FIRST_VERSION: i32 = 0;
        let mut request = Self::new(0, OP_SET_DATA);
        request.0.text(path);
        request.0.bytes(data);
        request.0.int(FIRST_VERSION);
        request
    }

    pub(crate) fn children(path: &str) -> Self {
        let mut request = Self::new(0, OP_GET_CHILDREN);
        request.0.text(path);
        request.0.bool(false);
        request
    }

    /// The paths of all nodes of this session.
    pub(crate) fn ephemerals() -> Self {
        let mut request = Self::new(0, OP_GET_EPHEMERALS);
        request.0.text("/");
        request
    }

    pub(crate) fn sync(path: &str) -> Self {
        let mut request = Self::new(0, OP_SYNC);
        request.0.text(path);
        request
    }

    /// Several steps, all or none.
    pub(crate) fn multi(steps: &[Step<'_>]) -> Self {
        let mut request = Self::new(0, OP_MULTI);
        for step in steps {
            step.write(&mut request.0);
        }
        multi_header(&mut request.0, -1, true);
        request
    }

    /// The children of several nodes, in one request.
    pub(crate) fn children_of_all<'a>(paths: impl Iterator<Item = &'a str>) -> Self {
        let mut request = Self::new(0, OP_MULTI_READ);
        for path in paths {
            multi_header(&mut request.0, OP_GET_CHILDREN, false);
            request.0.text(path);
            request.0.bool(false);
        }
        multi_header(&mut request.0, -1, true);
        request
    }

    pub(crate) fn close() -> Self {
        Self::new(0, OP_CLOSE)
    }

    pub(crate) fn auth(scheme: &str, secret: &[u8]) -> Self {
        let mut request = Self::new(XID_AUTH, OP_AUTH);
        request.0.int(0);
        request.0.text(scheme);
        request.0.bytes(secret);
        request
    }

    /// Sets the data watches again after a reconnect; the server notifies at once of what has changed since.
    pub(crate) fn set_watches<'a>(last_zxid: i64, paths: impl ExactSizeIterator<Item = &'a str>) -> Self {
        let mut request = Self::new(XID_SET_WATCHES, OP_SET_WATCHES);
        request.0.long(last_zxid);
        request.0.texts(paths);
        request.0.texts([].into_iter());
        request.0.texts([].into_iter());
        request
    }

    /// Whether only a server that has its leader can reply.
    pub(crate) fn reaches_leader(&self) -> bool {
        const OPERATIONS: [i32; 6] =
            [OP_CREATE, OP_CREATE_CONTAINER, OP_DELETE, OP_SET_DATA, OP_MULTI, OP_SYNC];
        OPERATIONS.iter().any(|operation| self.0.0[8..12] == operation.to_be_bytes())
    }

    /// The bytes to send under this number; requests with a number of their own keep it.
    pub(crate) fn frame(mut self, xid: i32) -> Vec<u8> {
        let bytes = &mut self.0.0;
        if bytes[4..8] == [0; 4] {
            bytes[4..8].copy_from_slice(&xid.to_be_bytes());
        }
        with_length(std::mem::take(bytes))
    }
}

/// Fills in the length that the first four bytes were left free for.
fn with_length(mut bytes: Vec<u8>) -> Vec<u8> {
    let length = u32::try_from(bytes.len() - 4).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// One step of a [`Request::multi`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    Create {
        path: &'a str,
        data: &'a [u8],
        acl: &'a [Acl],
        mode: Mode,
    },
    Delete {
        path: &'a str,
    },
    /// Raises a node's version, whatever it was.
    Touch {
        path: &'a str,
    },

    /// Fails unless the node has this version.
    Check {
        path: &'a str,
        version: i32,
    },
}

impl Step<'_> {
    fn write(&self, writer: &mut Writer) {
        match *self {
            Self::Create { path, data, acl, mode } => {
                multi_header(writer, OP_CREATE_STEP, false);
                create(writer, path, data, acl, mode);
            }
            Self::Delete { path } => {
                multi_header(writer, OP_DELETE, false);
                writer.text(path);
                writer.int(ANY_VERSION);
            }
            Self::Touch { path } => {
                multi_header(writer, OP_SET_DATA, false);
                writer.text(path);
                writer.bytes(&[]);
                writer.int(ANY_VERSION);
            }
            Self::Check { path, version } => {
                multi_header(writer, OP_CHECK, false);
                writer.text(path);
                writer.int(version);
            }
        }
    }
}

fn multi_header(writer: &mut Writer, operation: i32, done: bool) {
    writer.int(operation);
    writer.bool(done);
    writer.int(-1);
}

fn create(writer: &mut Writer, path: &str, data: &[u8], acl: &[Acl], mode: Mode) {
    writer.text(path);
    writer.bytes(data);
    writer.int(i32::try_from(acl.len()).unwrap_or(i32::MAX));
    for entry in acl {
        writer.int(entry.permissions);
        writer.text(entry.scheme);
        writer.text(entry.id);
    }
    writer.int(match mode {
        Mode::Ephemeral => 1,
        Mode::EphemeralSequential => 3,
        Mode::Container => 4,
    });
}

/// The first message of a connection.
pub(crate) fn connect(last_zxid: i64, timeout_ms: i32, session: i64, password: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.int(0);
    writer.int(0);
    writer.long(last_zxid);
    writer.int(timeout_ms);
    writer.long(session);
    writer.bytes(password);
    // A server cut off from its ensemble must refuse us: locks need the majority.
    writer.bool(false);
    with_length(writer.0)
}

/// The server's reply to [`connect`]. Session zero: the requested session has expired.
#[derive(Debug, Clone)]
pub(crate) struct ConnectReply {
    pub(crate) timeout_ms: i32,
    pub(crate) session: i64,
    pub(crate) password: Vec<u8>,
}

impl ConnectReply {
    pub(crate) fn read(body: &[u8]) -> Result<Self, Garbled> {
        let mut reader = Reader(body);
        reader.int()?;
        Ok(Self { timeout_ms: reader.int()?, session: reader.long()?, password: reader.bytes()?.to_vec() })
    }
}

/// What precedes every reply.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) xid: i32,
    pub(crate) zxid: i64,
    pub(crate) code: i32,
}

impl Header {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Garbled> {
        Ok(Self { xid: reader.int()?, zxid: reader.long()?, code: reader.int()? })
    }
}

/// The path a watch event is about; its kind does not matter to us.
pub(crate) fn event_path(reader: &mut Reader<'_>) -> Result<String, Garbled> {
    reader.int()?;
    reader.int()?;
    Ok(reader.text()?.to_owned())
}

pub(crate) fn read_stat(reader: &mut Reader<'_>) -> Result<Stat, Garbled> {
    let (czxid, mzxid) = (reader.long()?, reader.long()?);
    let (ctime_ms, mtime_ms) = (reader.long()?, reader.long()?);
    let version = reader.int()?;
    reader.int()?;
    reader.int()?;
    let ephemeral_owner = reader.long()?;
    reader.int()?;
    let children = reader.int()?;
    reader.long()?;
    Ok(Stat { czxid, mzxid, ctime_ms, mtime_ms, version, ephemeral_owner, children })
}

pub(crate) fn read_created(reader: &mut Reader<'_>) -> Result<Created, Garbled> {
    Ok(Created { path: reader.text()?.to_owned(), stat: read_stat(reader)? })
}

pub(crate) fn read_data(reader: &mut Reader<'_>) -> Result<(Vec<u8>, Stat), Garbled> {
    Ok((reader.bytes()?.to_vec(), read_stat(reader)?))
}

/// What one step of a multi did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The node's whole path, with the sequence the server appended.
    Created(String),
    Touched(Stat),
    Done,
    /// The refused step has its own code; those after it say 'rolled back'.
    Failed(i32),
}

pub(crate) fn read_multi(reader: &mut Reader<'_>) -> Result<Vec<Outcome>, Garbled> {
    let mut outcomes = Vec::new();
    loop {
        let (operation, done, _) = (reader.int()?, reader.bool()?, reader.int()?);
        if done {
            return Ok(outcomes);
        }
        outcomes.push(match operation {
            OP_CREATE_STEP => Outcome::Created(reader.text()?.to_owned()),
            OP_SET_DATA => Outcome::Touched(read_stat(reader)?),
            OP_DELETE | OP_CHECK => Outcome::Done,
            -1 => Outcome::Failed(reader.int()?),
            _ => return Err(Garbled),
        });
    }
}

/// The children of each node that [`Request::children_of_all`] names, or the code of the error.
pub(crate) fn read_children_of_all(
    reader: &mut Reader<'_>,
) -> Result<Vec<Result<Vec<String>, i32>>, Garbled> {
    let mut all = Vec::new();
    loop {
        let (operation, done, _) = (reader.int()?, reader.bool()?, reader.int()?);
        if done {
            return Ok(all);
        }
        all.push(match operation {
            OP_GET_CHILDREN => Ok(reader.texts()?),
            -1 => Err(reader.int()?),
            _ => return Err(Garbled),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_carries_its_length_and_number() {
        let frame = Request::delete("/a").frame(7);
        assert_eq!(frame.len(), 4 + 4 + 4 + (4 + 2) + 4);
        assert_eq!(frame[..8], [0, 0, 0, 18, 0, 0, 0, 7]);
        assert_eq!(Request::auth("digest", b"a:b").frame(7)[4..8], XID_AUTH.to_be_bytes());
    }
}
