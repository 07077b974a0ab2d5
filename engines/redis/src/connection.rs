//! One connection of the driver's to one server: how it is opened, what is sent on it, when it is of no use any more; and the
//! scripts that are called over it.

use crate::config::ConnectOptions;
use crate::error::{closes_the_connection, io_error};
use crate::keys;
use crate::sentinel::MasterWatch;
use crate::wake::{News, Subscription};
use lockkeeper_core::engine::{BoxFuture, Clock, Replies};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{
    Arg, AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, Pipeline, PushInfo, PushKind,
    RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, ToRedisArgs, Value,
};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::rustls::pki_types::ServerName;

/// A server's name and port.
pub type Server = (String, u16);

/// The oldest server whose scripts and commands are those that ours need.
const OLDEST_MAJOR_VERSION: u32 = 7;

/// A connection to a master. A request whose connection breaks fails, and is never sent again here: the caller knows what it
/// means (Law 4).
pub struct Connection {
    driver: MultiplexedConnection,
    _task: Task,
    replies: Replies,
    is_closed: watch::Sender<bool>,
    server: Server,
    master: Option<MasterWatch>,
}

impl Connection {
    /// Opens a connection to this server and checks that locks are safe there. Each request may take this long.
    ///
    /// Cancel safety: dropping the future closes the connection.
    ///
    /// # Errors
    /// Why there is none, or why it must not be used.
    pub async fn open(
        server: &Server,
        options: &ConnectOptions,
        limit: Duration,
        subscription: Option<Arc<Subscription>>,
    ) -> RedisResult<Self> {
        let is_closed = watch::Sender::new(false);
        // The driver's own limits would be timers of the caller's runtime, and 500 ms for each reply; `Replies` keeps ours.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_push_sender(push_sender(is_closed.clone(), subscription.clone()));
        let settings = options.settings().await?;
        let (driver, task) = in_time(limit, multiplexed(server, options, &settings, config)).await?;
        options.accepted();
        let (replies, server) = (Replies::new(limit), server.clone());
        let connection = Self { driver, _task: task, replies, is_closed, server, master: None };
        connection.check_server().await?;
        // A server that still loads its data accepts connections all the same; this waits until it serves.
        connection.request(&redis::cmd("PING")).await?;
        if let Some(channel) =
            subscription.as_ref().and_then(|subscription| subscription.own_channel.as_ref())
        {
            connection.subscribe(channel).await?;
        }
        Ok(connection)
    }

    /// Closed when the sentinels name another master.
    pub(crate) fn watching(mut self, master: MasterWatch) -> Self {
        self.master = Some(master);
        self
    }

    /// A replica may be behind, and a writable one would even take our claims. HELLO says the role and the version
    /// and needs no permission.
    async fn check_server(&self) -> RedisResult<()> {
        let reply = self.request(&redis::cmd("HELLO")).await?;
        let field = |name: &str| {
            let mut fields = reply.as_map_iter().into_iter().flatten();
            fields
                .find(|(key, _)| text_of(key).as_deref() == Some(name))
                .and_then(|(_, value)| text_of(value))
        };
        let version = field("version").unwrap_or_default();
        let major = version.split('.').next().and_then(|number| number.parse::<u32>().ok());
        if major.is_some_and(|major| major < OLDEST_MAJOR_VERSION) {
            return Err(RedisError::from((
                ErrorKind::InvalidClientConfig,
                "this server is too old: Redis 7.0 or newer is needed",
                format!("its version is {version}"),
            )));
        }
        match field("role").as_deref() {
            Some("master") => Ok(()),
            role => Err(RedisError::from((
                ErrorKind::Server(ServerErrorKind::ReadOnly),
                "this server is not a master, and locks are safe on a master only",
                format!("its role is '{}'", role.unwrap_or("unknown")),
            ))),
        }
    }

    /// Sends one command.
    ///
    /// Cancel safety: the command may or may not be sent.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn request(&self, command: &Cmd) -> RedisResult<Value> {
        let mut driver = self.driver.clone();
        let outcome = self.reply(driver.send_packed_command(command)).await.and_then(Value::extract_error);
        self.judge(&outcome);
        outcome
    }

    /// Sends one command and reads its reply.
    ///
    /// Cancel safety: the command may or may not be sent.
    ///
    /// # Errors
    /// What the server or the connection says, or that the reply is of another kind.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        Ok(redis::from_redis_value(self.request(command).await?)?)
    }

    /// Sends all commands in one go; the replies come one by one.
    ///
    /// Cancel safety: they may or may not be sent.
    ///
    /// # Errors
    /// When the connection fails; what a server says to one command is in its place.
    pub(crate) async fn pipeline(&self, commands: &Pipeline) -> RedisResult<Vec<RedisResult<Value>>> {
        let mut driver = self.driver.clone();
        let outcome = self.reply(driver.req_packed_commands(commands, 0, commands.len())).await;
        self.judge(&outcome);
        let replies: Vec<_> = outcome?.into_iter().map(Value::extract_error).collect();
        replies.iter().for_each(|reply| self.judge(reply));
        Ok(replies)
    }

    /// Subscribes to a channel.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        let mut driver = self.driver.clone();
        let outcome = self.reply(driver.subscribe(channel)).await;
        self.judge(&outcome);
        outcome
    }

    /// Ends the subscription to a channel.
    pub(crate) async fn unsubscribe(&self, channel: &str) -> RedisResult<()> {
        let mut driver = self.driver.clone();
        let outcome = self.reply(driver.unsubscribe(channel)).await;
        self.judge(&outcome);
        outcome
    }

    /// Runs a script.
    ///
    /// Cancel safety: it may or may not run.
    ///
    /// # Errors
    /// What the server, the script or the connection says.
    pub async fn run(&self, call: &Call) -> RedisResult<Value> {
        match self.request(call.command()).await {
            Err(error) if is_unknown_script(&error) => self.request_in_full(call).await,
            outcome => outcome,
        }
    }

    /// Seldom needed, and boxed so that the usual request is a small future.
    fn request_in_full<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, RedisResult<Value>> {
        Box::pin(async { self.request(&call.in_full()).await })
    }

    /// Runs scripts in one pipeline; those a server does not know are sent in full in a second one.
    ///
    /// Cancel safety: they may or may not run.
    ///
    /// # Errors
    /// When the connection fails; what a server says to one script is in its place.
    pub async fn run_all(&self, calls: &[Call]) -> RedisResult<Vec<RedisResult<Value>>> {
        Ok(self.run_all_then(calls, None).await?.0)
    }

    /// Runs scripts and then a command, if there is one, in one pipeline.
    pub(crate) async fn run_all_then(
        &self,
        calls: &[Call],
        then: Option<&Cmd>,
    ) -> RedisResult<(Vec<RedisResult<Value>>, Option<RedisResult<Value>>)> {
        if calls.is_empty() {
            return Ok((Vec::new(), None));
        }
        let commands = calls.iter().map(|call| call.command().clone());
        let (mut replies, mut last) = self.send_all_then(commands, then).await?;
        let is_unknown = |reply: &RedisResult<Value>| reply.as_ref().is_err_and(is_unknown_script);
        let unknown: Vec<usize> = (0..replies.len()).filter(|index| is_unknown(&replies[*index])).collect();
        if !unknown.is_empty() {
            let commands = unknown.iter().map(|index| calls[*index].in_full());
            let (again, its_last) = self.send_all_then(commands, then).await?;
            unknown.into_iter().zip(again).for_each(|(index, reply)| replies[index] = reply);
            last = its_last;
        }
        Ok((replies, last))
    }

    async fn send_all_then(
        &self,
        commands: impl Iterator<Item = Cmd>,
        then: Option<&Cmd>,
    ) -> RedisResult<(Vec<RedisResult<Value>>, Option<RedisResult<Value>>)> {
        let mut pipeline = Pipeline::new();
        for command in commands.chain(then.cloned()) {
            pipeline.add_command(command);
        }
        let mut replies = self.pipeline(&pipeline).await?;
        let last = then.and_then(|_| replies.pop());
        Ok((replies, last))
    }

    /// All keys of the server that match the pattern and are of that type, once each.
    ///
    /// Cancel safety: dropping the future has no effect.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn scan(&self, pattern: &str, kind: &str) -> RedisResult<Vec<String>> {
        let (mut keys, mut cursor) = (Vec::new(), 0u64);
        loop {
            let mut command = redis::cmd("SCAN");
            command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000).arg("TYPE").arg(kind);
            let (next, mut found): (u64, Vec<String>) = self.query(&command).await?;
            keys.append(&mut found);
            if next == 0 {
                break;
            }
            cursor = next;
        }
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Waits for the reply; one that does not come closes the connection, even if the caller has given up.
    async fn reply<T>(&self, request: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        let _silence = ClosesIfSilent(self);
        match self.replies.request(request).await {
            // A master that was replaced may still accept a write, and lose it when it follows the new one.
            Ok(Ok(_)) if self.is_replaced() => {
                Err(io_error(io::ErrorKind::ConnectionReset, "the sentinels name another master"))
            }
            Ok(reply) => reply,
            Err(no_reply) => Err(io_error(io::ErrorKind::TimedOut, no_reply.to_string())),
        }
    }

    /// Whether the sentinels name another master.
    fn is_replaced(&self) -> bool {
        self.master.as_ref().is_some_and(|master| master.is_elsewhere(&self.server))
    }

    fn judge<T>(&self, outcome: &RedisResult<T>) {
        if let Err(error) = outcome
            && closes_the_connection(error)
        {
            self.is_closed.send_replace(true);
        }
    }

    /// Resolves when the connection is of no use any more.
    ///
    /// Cancel safety: dropping the future has no effect.
    pub async fn closed(&self) {
        let mut is_closed = self.is_closed.subscribe();
        let ended = async {
            let _ = is_closed.wait_for(|is_closed| *is_closed).await;
        };
        match &self.master {
            None => ended.await,
            Some(master) => tokio::select! {
                () = ended => {}
                () = master.has_moved_from(&self.server) => {}
            },
        }
    }
}

impl lockkeeper_core::engine::Connection for Connection {
    fn is_closed(&self) -> bool {
        *self.is_closed.borrow() || self.replies.is_silent() || self.is_replaced()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({}:{})", self.server.0, self.server.1)
    }
}

/// A connection of the driver's; its task runs on the caller's runtime.
pub(crate) async fn multiplexed(
    server: &Server,
    options: &ConnectOptions,
    settings: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> RedisResult<(MultiplexedConnection, Task)> {
    let stream = open_stream(server, options).await?;
    let (driver, task) = MultiplexedConnection::new_with_config(settings, stream, config).await?;
    Ok((driver, Task(tokio::spawn(task).abort_handle())))
}

/// The task of the driver's that reads and writes; dropping it closes the connection, even if the server is silent.
pub(crate) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The result, or an error when there is none within the limit.
pub(crate) async fn in_time<T>(
    limit: Duration,
    connecting: impl Future<Output = RedisResult<T>>,
) -> RedisResult<T> {
    let no_reply = |_| io_error(io::ErrorKind::TimedOut, "no connection in time");
    Clock::Boot.timeout(limit, connecting).await.map_err(no_reply)?
}

/// What the driver speaks its protocol over. It can open TCP and TLS itself, but reads the system's authorities from the disk
/// each time, even if it is given others.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Opens a connection to this server without sending anything of the protocol.
pub(crate) async fn open_stream(
    (host, port): &Server,
    options: &ConnectOptions,
) -> io::Result<Box<dyn Stream>> {
    if host.starts_with('/') {
        return Ok(Box::new(UnixStream::connect(host).await?));
    }
    let stream = TcpStream::connect((host.as_str(), *port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = options.tls() else { return Ok(Box::new(stream)) };
    let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
    Ok(Box::new(tls.connect(name, stream).await?))
}

/// Dropped after a request, answered or not: says so if the connection has been found silent.
struct ClosesIfSilent<'a>(&'a Connection);

impl Drop for ClosesIfSilent<'_> {
    fn drop(&mut self) {
        if self.0.replies.is_silent() {
            self.0.is_closed.send_if_modified(|is_closed| !std::mem::replace(is_closed, true));
        }
    }
}

fn push_sender(
    is_closed: watch::Sender<bool>,
    subscription: Option<Arc<Subscription>>,
) -> impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static {
    move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            is_closed.send_replace(true);
        } else if let (Some(subscription), Some((channel, news))) = (&subscription, read_news(&push)) {
            (subscription.receive)(channel, news);
        }
        Ok(())
    }
}

/// A channel, and what came on it.
fn read_news(push: &PushInfo) -> Option<(&str, News<'_>)> {
    let text = |index: usize| match push.data.get(index) {
        Some(Value::BulkString(text)) => std::str::from_utf8(text).ok(),
        _ => None,
    };
    let news = match push.kind {
        PushKind::Message | PushKind::SMessage => News::Message(text(1)?),
        PushKind::SUnsubscribe => News::Ended,
        _ => return None,
    };
    Some((text(0)?, news))
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

fn text_of(value: &Value) -> Option<String> {
    redis::from_redis_value_ref(value).ok()
}

/// A script, known to the server by its hash.
#[derive(Debug)]
pub struct Script {
    code: String,
    hash: String,
}

impl Script {
    /// A script of this text.
    pub fn new(code: impl Into<String>) -> Self {
        let code = code.into();
        let hash = redis::Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }

    /// A call of it on these keys, which all live in one slot of a Cluster.
    pub fn call<K: AsRef<str>>(&'static self, keys: &[K]) -> Call {
        let mut command = Cmd::with_capacity(12, 512);
        command.arg("EVALSHA").arg(&self.hash).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        Call { script: self, command }
    }
}

/// A TTL as scripts take it: at least one, for a TTL of zero would be none.
pub fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// One call of a script.
#[derive(Debug, Clone)]
pub struct Call {
    script: &'static Script,
    command: Cmd,
}

impl Call {
    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.command.arg(argument);
        self
    }

    /// The command that calls it by its hash.
    pub(crate) fn command(&self) -> &Cmd {
        &self.command
    }

    /// The same call with the script's text, which makes the server remember it.
    pub(crate) fn in_full(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.script.code);
        for word in self.words().skip(2) {
            command.arg(word);
        }
        command
    }

    /// The slot of its keys in a Cluster.
    pub(crate) fn slot(&self) -> u16 {
        self.words().nth(3).map_or(0, keys::slot)
    }

    fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.command.args_iter().filter_map(|word| match word {
            Arg::Simple(word) => Some(word),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    static ECHO: LazyLock<Script> = LazyLock::new(|| Script::new("return ARGV[1]"));

    #[test]
    fn a_call_in_full_has_the_text_and_the_same_words() {
        let call = ECHO.call(&["{a}:b", "{a}:c"]).arg("x").arg(7);
        let full = String::from_utf8(call.in_full().get_packed_command()).unwrap();
        let words: Vec<&str> = full.split("\r\n").skip(2).step_by(2).collect();
        assert_eq!(words, ["EVAL", "return ARGV[1]", "2", "{a}:b", "{a}:c", "x", "7"]);
        assert_eq!(call.slot(), keys::slot("a"));
    }
}
