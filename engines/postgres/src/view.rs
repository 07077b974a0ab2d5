//! Who holds what in the session and advisory styles: only the holders know, so a list is a request to all keepers.
//!
//! A table of holders would cost a committed write for every lock; a request costs nothing until it is made.

use crate::config::{Backend, Settings};
use crate::connection::{self, Message, Purpose};
use crate::wake::reconnect;
use lockkeeper_core::engine::{ClaimId, Clock, Connections, LockName, background};
use lockkeeper_core::{Holder, LockView, Result};
use lockkeeper_sql_common::{ClaimRow, Connection, Hold, Holds, foreign_lock, lock_views};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const STATEMENTS: &[&str] = &[
    include_str!("sql/view_ask.sql"),
    "SELECT pg_notify($1, line) FROM unnest($2::text[]) AS line",
    include_str!("sql/view_active.sql"),
    include_str!("sql/view_cancel.sql"),
    include_str!("sql/view_terminate.sql"),
    include_str!("sql/view_foreign.sql"),
    "SELECT lockkeeper_session_clean(interval '1 day')",
];
const ASK: usize = 0;
const REPLY: usize = 1;
const ACTIVE: usize = 2;
const CANCEL: usize = 3;
const TERMINATE: usize = 4;
const FOREIGN: usize = 5;
const CLEAN: usize = 6;

/// How long a reply may take; slower keepers are left out.
const TIMEOUT: Duration = Duration::from_millis(1500);

/// How often idle rows are removed.
const CLEAN_EVERY: Duration = Duration::from_secs(3600);

/// The keepers of one style, and the connection over which they and the server's processes are reached.
pub(crate) struct Registry {
    connections: Connections<connection::Connection>,
    channel: String,
    number: i64,
    own_channel: String,
    requests: Mutex<HashMap<String, UnboundedSender<String>>>,
    /// Whether other programs can have the locks.
    has_foreign: bool,
    closed: AtomicBool,
}

impl Registry {
    /// Registers a keeper: from now on requests are answered with these holds.
    pub(crate) async fn join<C: Connection>(
        settings: &Arc<Settings>,
        style: &str,
        number: i64,
        holds: &Arc<Holds<C>>,
    ) -> Result<Arc<Self>> {
        let (sender, messages) = unbounded_channel();
        let channel = format!("lockkeeper_roll_{style}");
        let own_channel = format!("lockkeeper_{}", ClaimId::random());
        let (limit, cleans) = (settings.limits.request, style == "session");
        let purpose = Purpose {
            statements: if cleans { STATEMENTS } else { &STATEMENTS[..CLEAN] },
            settings: format!("SET statement_timeout = {0}; SET lock_timeout = {0};", limit.as_millis()),
            start: format!(
                "LISTEN {channel}; LISTEN {own_channel}; SELECT pg_advisory_lock_shared(1819046763, {number})"
            ),
            messages: Some(sender),
            ..Purpose::default()
        };
        let settings = Arc::clone(settings);
        let connections = Connections::new(move || {
            let (settings, purpose) = (Arc::clone(&settings), purpose.clone());
            async move { connection::Connection::open(&settings, &purpose, limit).await }
        });
        connections.background().await?;
        let (requests, closed) = (Mutex::default(), AtomicBool::new(false));
        let has_foreign = style == "advisory";
        let registry =
            Arc::new(Self { connections, channel, number, own_channel, requests, has_foreign, closed });
        background::handle().spawn(listen(Arc::clone(&registry), messages, Arc::clone(holds)));
        if cleans {
            background::handle().spawn(clean(Arc::downgrade(&registry)));
        }
        Ok(registry)
    }

    fn requests(&self) -> MutexGuard<'_, HashMap<String, UnboundedSender<String>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to every keeper; the replies that came in time.
    async fn ask(&self, request: &str, doing: &'static str) -> Result<Vec<String>> {
        let id = ClaimId::random().to_string();
        let (sender, mut replies) = unbounded_channel();
        self.requests().insert(id.clone(), sender);
        let _ends = EndsRequest(self, &id);
        let request = format!("{id}\t{}\t{request}", self.own_channel);
        let connection = self.connections.background().await?;
        let row = connection.row(ASK, &[&self.channel, &request, &self.number], doing).await?;
        let (present, mut lines, mut ended) = (row.get::<_, i64>("present"), Vec::new(), 0);
        let collecting = async {
            while ended < present
                && let Some(reply) = replies.recv().await
            {
                match reply.as_str() {
                    "end" => ended += 1,
                    _ => lines.push(reply),
                }
            }
        };
        if Clock::Boot.timeout(TIMEOUT, collecting).await.is_err() {
            tracing::warn!(present, ended, "some keepers did not reply with their locks");
        }
        Ok(lines)
    }

    /// The locks held by anybody.
    pub(crate) async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let lines = self.ask("who", "list locks").await?;
        let mut rows: Vec<ClaimRow> = lines.iter().filter_map(|line| read_hold(line)).collect();
        rows.retain(|row| row.name.starts_with(prefix));
        rows.sort_by(|one, other| (&one.name, one.token).cmp(&(&other.name, other.token)));
        let mut locks = lock_views(rows);
        // The name that an operator asks for comes first.
        if self.has_foreign
            && locks.first().is_none_or(|lock| lock.name != prefix)
            && let Some(foreign) = self.foreign(prefix).await?
        {
            locks.insert(0, foreign);
        }
        locks.truncate(at_most);
        Ok(locks)
    }

    /// The lock of this name, if a session that is no keeper's has it.
    async fn foreign(&self, name: &str) -> Result<Option<LockView>> {
        let connection = self.connections.background().await?;
        let rows = connection.rows(FOREIGN, &[&name], "look for another program").await?;
        Ok(rows.first().map(|row| {
            let pid = row.get::<_, i32>("pid").unsigned_abs();
            foreign_lock(name, pid.into(), Holder { text: row.get("who"), host: row.get("host"), pid })
        }))
    }

    /// Has the holder let go.
    pub(crate) async fn evict(&self, id: ClaimId) -> Result<bool> {
        let lines = self.ask(&format!("evict\t{id}"), "evict a claim").await?;
        Ok(lines.iter().any(|line| line == "evicted"))
    }

    /// Lets the holder know that somebody asks for its hold.
    pub(crate) async fn ask_to_release(&self, id: ClaimId) -> Result<bool> {
        let lines = self.ask(&format!("ask\t{id}"), "ask a holder to release").await?;
        Ok(lines.iter().any(|line| line == "asked"))
    }

    /// Whether the process is executing a statement.
    pub(crate) async fn is_active(&self, backend: &Backend) -> Result<bool> {
        self.process(ACTIVE, backend, "look at a wait").await
    }

    /// Ends the statement that the process executes.
    pub(crate) async fn cancel(&self, backend: &Backend) -> Result<()> {
        self.process(CANCEL, backend, "end a wait").await.map(drop)
    }

    /// Ends the process.
    pub(crate) async fn terminate(&self, backend: &Backend) -> Result<()> {
        self.process(TERMINATE, backend, "end a session").await.map(drop)
    }

    async fn process(&self, statement: usize, backend: &Backend, doing: &'static str) -> Result<bool> {
        let connection = self.connections.background().await?;
        let rows = connection.rows(statement, &[&backend.pid, &backend.started], doing).await?;
        Ok(!rows.is_empty())
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.connections.close();
    }
}

struct EndsRequest<'a>(&'a Registry, &'a str);

impl Drop for EndsRequest<'_> {
    fn drop(&mut self) {
        self.0.requests().remove(self.1);
    }
}

/// Replies to requests, passes replies on, and reconnects when the connection is lost.
async fn listen<C: Connection>(
    registry: Arc<Registry>,
    mut messages: UnboundedReceiver<Message>,
    holds: Arc<Holds<C>>,
) {
    while let Some(message) = messages.recv().await {
        let is_closed = || registry.closed.load(SeqCst);
        let note = match message {
            _ if is_closed() => return,
            Message::Notification(note) => note,
            Message::Closed => {
                reconnect(&registry.connections, is_closed).await;
                continue;
            }
        };
        let Some((id, rest)) = note.payload().split_once('\t') else { continue };
        if note.channel() == registry.own_channel {
            if let Some(replies) = registry.requests().get(id) {
                let _ = replies.send(rest.to_owned());
            }
            continue;
        }
        let Some((channel, request)) = rest.split_once('\t') else { continue };
        let mut lines = reply(request, &holds).await;
        lines.push("end".into());
        let lines: Vec<String> = lines.into_iter().map(|line| format!("{id}\t{line}")).collect();
        if let Err(error) = send(&registry, channel, &lines).await {
            tracing::debug!(%error, "could not reply with the locks held");
        }
    }
}

async fn send(registry: &Registry, channel: &str, lines: &Vec<String>) -> Result<()> {
    let connection = registry.connections.background().await?;
    connection.rows(REPLY, &[&channel, lines], "reply with the locks held").await.map(drop)
}

async fn reply<C: Connection>(request: &str, holds: &Holds<C>) -> Vec<String> {
    let all = holds.all();
    let live = all.iter().filter(|(_, hold)| {
        let open = hold.connection.as_ref().is_some_and(|connection| !connection.lifeline().has_ended());
        hold.token.is_some() && open
    });
    match request.split_once('\t') {
        Some(("evict", id)) => {
            for (name, hold) in live.filter(|(_, hold)| hold.id.to_string() == id) {
                if let Some(ending) = holds.end(name, hold.id).await
                    && let Some(connection) = &ending.connection
                    && connection.free(name).await.is_ok()
                {
                    ending.done();
                    return vec!["evicted".into()];
                }
            }
            Vec::new()
        }
        Some(("ask", id)) => {
            let mut found = live.filter(|(_, hold)| hold.id.to_string() == id);
            let is_asked = found.any(|(name, hold)| holds.ask(name, hold.id));
            if is_asked { vec!["asked".into()] } else { Vec::new() }
        }
        _ => live.map(|(name, hold)| write_hold(name, hold)).collect(),
    }
}

fn write_hold<C>(name: &LockName, hold: &Hold<C>) -> String {
    let now = Clock::Boot.now();
    let token = hold.token.map_or(0, |token| token.0);
    let (age, left) = (now.since(hold.since).as_millis(), hold.expires_at.since(now).as_millis());
    format!("{}\t{}\t{token}\t{age}\t{left}\t{}", name.as_str(), hold.id, hold.holder.encode())
}

pub(crate) fn read_hold(line: &str) -> Option<ClaimRow> {
    let mut parts = line.splitn(6, '\t');
    let mut next = || parts.next();
    Some(ClaimRow {
        name: next()?.into(),
        id: next()?.into(),
        token: next()?.parse().ok()?,
        age_ms: next()?.parse().ok()?,
        held_ms: None,
        left_ms: next()?.parse().ok(),
        holder: Holder::decode(next()?).encode(),
        demand: "exclusive".into(),
    })
}

/// Removes idle rows now and then.
async fn clean(registry: Weak<Registry>) {
    loop {
        // At random, so that the keepers of a fleet do not all come at once.
        Clock::Boot.sleep(CLEAN_EVERY.mul_f64(rand::random_range(0.2..1.0))).await;
        let Some(registry) = registry.upgrade() else { return };
        if registry.closed.load(SeqCst) {
            return;
        }
        if let Ok(connection) = registry.connections.background().await {
            let _ = connection.rows(CLEAN, &[], "remove idle rows").await;
        }
    }
}
