//! The floor of ZooKeeper: create an ephemeral node and delete it, in the plain protocol on one socket.

use super::Pairs;
use crate::Result;
use futures_util::future::BoxFuture;
use lockkeeper_core::engine::Address;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// Longer than any run, so that no ping is needed.
const SESSION_MS: i32 = 30_000;
const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EPHEMERAL: i32 = 1;
const ALL_PERMISSIONS: i32 = 31;

/// One session for all locks; requests are sent without waiting for the replies before.
pub(crate) struct CreateAndDelete {
    requests: mpsc::UnboundedSender<Request>,
    prefix: String,
}

struct Request {
    bytes: Vec<u8>,
    /// Gets the server's error code; zero is good.
    reply: oneshot::Sender<i32>,
}

/// ZooKeeper answers a session's requests in their order.
type Pending = Arc<Mutex<VecDeque<oneshot::Sender<i32>>>>;

impl CreateAndDelete {
    pub(crate) async fn connect(address: &Address) -> Result<Self> {
        let host = address.hosts.first().ok_or("the URL names no host")?.with_port(2181);
        let mut stream = TcpStream::connect(host).await?;
        stream.set_nodelay(true)?;
        // Protocol 0, no last transaction, no session before, an empty password, not read-only.
        let hello = Packet::default().int(0).long(0).int(SESSION_MS).long(0).bytes(&[0; 16]).flag(false);
        stream.write_all(&hello.finish()).await?;
        read_packet(&mut stream).await?;
        let (reader, writer) = stream.into_split();
        let (requests, inbox) = mpsc::unbounded_channel();
        let pending = Pending::default();
        tokio::spawn(write(writer, inbox, Arc::clone(&pending)));
        tokio::spawn(read(reader, pending));
        Ok(Self { requests, prefix: format!("/lockkeeper-bench-floor-{:016x}", rand::random::<u64>()) })
    }

    async fn ask(&self, packet: Packet) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request { bytes: packet.finish(), reply })?;
        match answer.await? {
            0 => Ok(()),
            code => Err(format!("ZooKeeper refused the floor's request with code {code}").into()),
        }
    }
}

impl Pairs for CreateAndDelete {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let path = format!("{}-{lock}", self.prefix);
            let create = Packet::default().int(1).int(CREATE).bytes(path.as_bytes()).bytes(b"floor");
            let open = create.int(1).int(ALL_PERMISSIONS).bytes(b"world").bytes(b"anyone");
            self.ask(open.int(EPHEMERAL)).await?;
            let any_version = -1;
            self.ask(Packet::default().int(2).int(DELETE).bytes(path.as_bytes()).int(any_version)).await
        })
    }
}

async fn write(mut writer: OwnedWriteHalf, mut inbox: mpsc::UnboundedReceiver<Request>, pending: Pending) {
    while let Some(request) = inbox.recv().await {
        pending.lock().unwrap_or_else(PoisonError::into_inner).push_back(request.reply);
        if writer.write_all(&request.bytes).await.is_err() {
            break;
        }
    }
}

/// Ends with the connection; replies that never come are dropped with the queue.
async fn read(mut reader: OwnedReadHalf, pending: Pending) {
    while let Ok(packet) = read_packet(&mut reader).await {
        // Number of the request, number of the transaction, error.
        let code = packet.get(12..16).and_then(|bytes| bytes.try_into().ok()).map_or(-1, i32::from_be_bytes);
        let reply = pending.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        if reply.is_none_or(|reply| reply.send(code).is_err()) {
            break;
        }
    }
    pending.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

async fn read_packet(reader: &mut (impl AsyncReadExt + Unpin)) -> Result<Vec<u8>> {
    let length = usize::try_from(reader.read_i32().await?)?;
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// A request in ZooKeeper's encoding: numbers in network order, texts with their length before them.
#[derive(Default)]
struct Packet(Vec<u8>);

impl Packet {
    fn int(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn long(mut self, number: i64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn flag(mut self, flag: bool) -> Self {
        self.0.push(u8::from(flag));
        self
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        let mut longer = self.int(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        longer.0.extend(bytes);
        longer
    }

    fn finish(self) -> Vec<u8> {
        let length = i32::try_from(self.0.len()).unwrap_or(i32::MAX);
        [length.to_be_bytes().as_slice(), &self.0].concat()
    }
}
