//! One connection: how it is opened, and what is sent on it.

use crate::link::{Dial, io_error};
use crate::lua::Request;
use crate::reply;
use lockkeeper_core::drive::{Drive, Manner, Moves, Stream, Watch, Watched, Wire, once_more};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, PushInfo, RedisError, RedisResult};
use redis::{ServerErrorKind, Value};
use std::borrow::Cow;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// What can be sent: a command of the driver's, or a script.
pub(crate) trait Words: Sync {
    /// Writes it as it is sent.
    fn write(&self, out: &mut Vec<u8>);

    /// It as a command of the driver's.
    fn command(&self) -> Cow<'_, Cmd>;
}

impl Words for Cmd {
    fn write(&self, out: &mut Vec<u8>) {
        self.write_packed_command(out);
    }

    fn command(&self) -> Cow<'_, Cmd> {
        Cow::Borrowed(self)
    }
}

impl Words for Request {
    fn write(&self, out: &mut Vec<u8>) {
        Self::write(self, out);
    }

    fn command(&self) -> Cow<'_, Cmd> {
        Cow::Owned(Self::command(self))
    }
}

/// A connection to a server that serves.
#[derive(Clone)]
pub(crate) enum Connection {
    /// The driver's, on a task of its own: it listens, or is encrypted.
    Driver(MultiplexedConnection),
    /// Driven by whoever asks, who then needs no other task, and watched by the background, which needs no timer for each request.
    Wire(Wire<Value>, Arc<Watched>),
}

impl Connection {
    /// Opens a connection to this server. `said` hears what the server says unasked, and `ended` of the end, each if it is of that
    /// kind.
    ///
    /// Cancel safety: dropping the future closes the connection.
    ///
    /// # Errors
    /// Why there is none, or why it must not be used.
    pub(crate) async fn open(
        (host, port): (&str, u16),
        dial: &Dial,
        watch: &Watch,
        said: impl Fn(PushInfo) -> Result<(), ()> + Send + Sync + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> RedisResult<Self> {
        let Dial { greeting, time_limit, ears, .. } = dial;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(*time_limit))
            .set_response_timeout(Some(*time_limit));
        if ears.is_some() || greeting.is_encrypted() {
            let config = config.set_push_sender(said);
            let client = greeting.client(host, port)?;
            let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            greet(&mut connection, dial).await?;
            return Ok(Self::Driver(connection));
        }
        let io = TcpStream::connect((host, port)).await?;
        io.set_nodelay(true)?;
        // The driver knows how to greet: it has the socket until nothing is under way on it any more.
        let same = once_more(&io)?;
        let (mut connection, driver) =
            MultiplexedConnection::new_with_config(greeting.settings(), same, config).await?;
        tokio::select! {
            greeted = greet(&mut connection, dial) => greeted?,
            () = driver => return Err(io_error(io::ErrorKind::ConnectionReset, "the connection has ended")),
        }
        let moves = Moves::default();
        let (wire, line) =
            Wire::over(Stream::new(io, Arc::clone(&moves)), Manner::AtOnce, reply::reads, ended);
        let drive = Drive::start(line, moves, &Handle::current(), false);
        Ok(Self::Wire(wire, watch.over(drive)))
    }

    /// Sends one command.
    ///
    /// Cancel safety: the command may or may not be sent.
    ///
    /// # Errors
    /// What the connection or the server says.
    pub(crate) async fn send(&mut self, words: &(impl Words + ?Sized)) -> RedisResult<Value> {
        let reply = match self {
            Self::Driver(connection) => {
                let command = words.command();
                Box::pin(async move { connection.send_packed_command(&command).await }).await?
            }
            Self::Wire(wire, watched) => ask(watched, wire.ask(|out| words.write(out))).await?,
        };
        reply.extract_error()
    }

    /// Sends all commands in one go; the replies come one by one.
    ///
    /// Cancel safety: they may or may not be sent.
    ///
    /// # Errors
    /// When the connection fails; what a server says to one command is in its place.
    pub(crate) async fn send_all(&mut self, commands: &Pipeline) -> RedisResult<Vec<RedisResult<Value>>> {
        let replies = match self {
            Self::Driver(connection) => connection.req_packed_commands(commands, 0, commands.len()).await?,
            Self::Wire(wire, watched) => {
                let write = |out: &mut Vec<u8>| out.extend(commands.get_packed_pipeline());
                ask(watched, wire.ask_all(write, commands.len())).await?
            }
        };
        Ok(replies.into_iter().map(Value::extract_error).collect())
    }
}

/// Waits for an answer, and drives the connection meanwhile.
async fn ask<T>(watched: &Watched, request: impl Future<Output = io::Result<T>>) -> RedisResult<T> {
    watched.drive().come_here();
    match watched.ask(pin!(request)).await {
        Err(_) if watched.was_late() => {
            Err(io_error(io::ErrorKind::TimedOut, "the server did not answer in time"))
        }
        outcome => Ok(outcome?),
    }
}

/// Sees that the server is one to lock on.
async fn greet(connection: &mut MultiplexedConnection, dial: &Dial) -> RedisResult<()> {
    if dial.target.must_be_master() {
        check_role(connection).await?;
    }
    // A server that still loads its data greets us all the same; this waits until it serves.
    connection.send_packed_command(&redis::cmd("PING")).await?.extract_error()?;
    if let Some(check) = &dial.check {
        (check.0)(connection.clone()).await?;
    }
    if let Some(ears) = &dial.ears {
        connection.subscribe(&ears.channel).await?;
    }
    Ok(())
}

/// A replica may be behind, and a writable one would even take our claims: never lock there. HELLO tells the
/// role without asking for any permission.
async fn check_role(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let reply = connection.send_packed_command(&redis::cmd("HELLO")).await?.extract_error()?;
    let fields = reply.as_map_iter().into_iter().flatten();
    let role = fields
        .filter(|(key, _)| text_of(key).as_deref() == Some("role"))
        .find_map(|(_, value)| text_of(value));
    match role.as_deref() {
        Some("master") => Ok(()),
        role => Err(RedisError::from((
            ErrorKind::Server(ServerErrorKind::ReadOnly),
            "this server is not a master, and locks are safe on a master only",
            format!("its role is '{}'", role.unwrap_or("unknown")),
        ))),
    }
}

fn text_of(value: &Value) -> Option<String> {
    redis::from_redis_value_ref(value).ok()
}
