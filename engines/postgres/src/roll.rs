//! The roll-call: session locks are known to their holders only, so whoever wants a list asks all keepers.
//!
//! A table of holders would cost a committed write for every lock; a question costs nothing until it is asked.

use crate::config::Settings;
use crate::fault::ENGINE;
use crate::link::Link;
use lockkeeper_core::{ClaimId, Clock, Error, Holder, LockName, LockView, Result, background};
use lockkeeper_sql_common::{ClaimRow, Connection, Hold, Holds, lock_views};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_postgres::Notification;

const STATEMENTS: &[&str] = &[
    include_str!("sql/roll_call.sql"),
    include_str!("sql/roll_answer.sql"),
    include_str!("sql/cancel.sql"),
    include_str!("sql/session_clean.sql"),
];
const CALL: usize = 0;
const ANSWER: usize = 1;
const CANCEL: usize = 2;
const CLEAN: usize = 3;

/// How long an answer may take; who is slower is left out.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The keepers of one style, as they can be asked.
pub(crate) struct Roll {
    link: Link,
    channel: String,
    number: i64,
    own_channel: String,
    calls: Mutex<HashMap<String, UnboundedSender<String>>>,
    closed: AtomicBool,
}

impl Roll {
    /// Joins the roll of a style: from now on questions are answered with these holds.
    pub(crate) async fn join<C: Connection>(
        settings: &Arc<Settings>,
        style: &str,
        number: i64,
        holds: &Arc<Holds<C>>,
    ) -> Result<Arc<Self>> {
        let (sender, messages) = unbounded_channel();
        let channel = format!("lockkeeper_roll_{style}");
        let own_channel = format!("lockkeeper_{}", ClaimId::random());
        let greeting = format!(
            "LISTEN {channel}; LISTEN {own_channel}; SELECT pg_advisory_lock_shared(1819046763, {number})"
        );
        let statements = if style == "session" { STATEMENTS } else { &STATEMENTS[..CLEAN] };
        let link = Link::new(settings, statements, Some(sender), Some(greeting));
        link.session().await?;
        let roll = Arc::new(Self {
            link,
            channel,
            number,
            own_channel,
            calls: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        background::handle().spawn(listen(Arc::clone(&roll), messages, Arc::clone(holds)));
        background::handle().spawn(attend(Arc::clone(&roll), style == "session"));
        Ok(roll)
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<String, UnboundedSender<String>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks everybody; the answers of those who answered in time.
    async fn ask(&self, question: &str, doing: &'static str) -> Result<Vec<String>> {
        let call = ClaimId::random().to_string();
        let (sender, mut answers) = unbounded_channel();
        self.calls().insert(call.clone(), sender);
        let _ends = EndsCall(self, &call);
        let question = format!("{call}\t{}\t{question}", self.own_channel);
        let session = self.link.session().await?;
        let row = session.row(CALL, &[&self.channel, &question, &self.number], doing).await?;
        let (present, mut lines, mut ended) = (row.get::<_, i64>("present"), Vec::new(), 0);
        let collecting = async {
            while ended < present
                && let Some(answer) = answers.recv().await
            {
                match answer.as_str() {
                    "end" => ended += 1,
                    _ => lines.push(answer),
                }
            }
        };
        if tokio::time::timeout(PATIENCE, collecting).await.is_err() {
            tracing::warn!(present, ended, "some keepers did not answer the roll-call");
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
        locks.truncate(at_most);
        Ok(locks)
    }

    /// Asks the holder to let go.
    pub(crate) async fn evict(&self, id: ClaimId) -> Result<bool> {
        let lines = self.ask(&format!("evict\t{id}"), "evict a claim").await?;
        Ok(lines.iter().any(|line| line == "evicted"))
    }

    /// Ends what a connection waits for in the server.
    pub(crate) async fn cancel(&self, backend: i32) -> Result<()> {
        let session = self.link.session().await?;
        session.row(CANCEL, &[&backend], "end a wait").await.map(drop)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.link.close();
    }
}

struct EndsCall<'a>(&'a Roll, &'a str);

impl Drop for EndsCall<'_> {
    fn drop(&mut self) {
        self.0.calls().remove(self.1);
    }
}

/// Answers questions and hands out answers.
async fn listen<C: Connection>(
    roll: Arc<Roll>,
    mut messages: UnboundedReceiver<Notification>,
    holds: Arc<Holds<C>>,
) {
    while let Some(note) = messages.recv().await {
        if roll.closed.load(SeqCst) {
            return;
        }
        let Some((call, rest)) = note.payload().split_once('\t') else { continue };
        if note.channel() == roll.own_channel {
            if let Some(asker) = roll.calls().get(call) {
                let _ = asker.send(rest.to_owned());
            }
            continue;
        }
        let Some((channel, question)) = rest.split_once('\t') else { continue };
        let mut lines = answer(question, &holds).await;
        lines.push("end".into());
        let lines: Vec<String> = lines.into_iter().map(|line| format!("{call}\t{line}")).collect();
        if let Err(error) = send(&roll, channel, &lines).await {
            tracing::debug!(%error, "could not answer a roll-call");
        }
    }
}

async fn send(roll: &Roll, channel: &str, lines: &Vec<String>) -> Result<()> {
    let session = roll.link.current();
    let session =
        session.ok_or_else(|| Error::temporary(ENGINE, "answer a roll-call", "the line is broken"))?;
    session.rows(ANSWER, &[&channel, lines], "answer a roll-call").await.map(drop)
}

async fn answer<C: Connection>(question: &str, holds: &Holds<C>) -> Vec<String> {
    let all = holds.all();
    let live = all.iter().filter(|(_, hold)| {
        let open = hold.connection.as_ref().is_some_and(|connection| !connection.lifeline().has_ended());
        hold.token.is_some() && open
    });
    match question.split_once('\t') {
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
        _ => live.map(|(name, hold)| write_hold(name, hold)).collect(),
    }
}

fn write_hold<C>(name: &LockName, hold: &Hold<C>) -> String {
    let now = Clock::Boot.now();
    let token = hold.token.map_or(0, |token| token.0);
    let (age, left) = (now.since(hold.since).as_millis(), hold.expires_at.since(now).as_millis());
    format!("{}\t{}\t{token}\t{age}\t{left}\t{}", name.as_str(), hold.id, hold.holder.encode())
}

fn read_hold(line: &str) -> Option<ClaimRow> {
    let mut parts = line.splitn(6, '\t');
    let mut next = || parts.next();
    Some(ClaimRow {
        name: next()?.into(),
        id: next()?.into(),
        token: next()?.parse().ok()?,
        age_ms: next()?.parse().ok()?,
        left_ms: next()?.parse().ok(),
        holder: Holder::decode(next()?).encode(),
        demand: "exclusive".into(),
    })
}

/// Keeps the line open, so that questions are heard; removes idle rows now and then.
async fn attend(roll: Arc<Roll>, cleans: bool) {
    let every = Duration::from_secs(3600).mul_f64(rand::random_range(0.2..1.0));
    let mut clean_at = Clock::Boot.now().plus(every);
    while !roll.closed.load(SeqCst) {
        tokio::time::sleep(Duration::from_millis(300)).await;
        if roll.closed.load(SeqCst) {
            return;
        }
        let session = roll.link.session().await;
        if let Ok(session) = session
            && cleans
            && Clock::Boot.now() >= clean_at
        {
            clean_at = Clock::Boot.now().plus(every);
            let _ = session.rows(CLEAN, &[], "remove idle rows").await;
        }
    }
    roll.link.close();
}
