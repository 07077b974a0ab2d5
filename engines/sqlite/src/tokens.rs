//! Where places and tokens come from. Only this engine has no server that counts: they are the shared clock plus a base.

use crate::error::Sql;
use crate::time::{Time, micros};
use rusqlite::Connection;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// How far ahead the horizon of tokens is set, so that it is rarely written.
const HORIZON_MICROS: i64 = 60_000_000;

/// The tokens of one style, as far as they are known without a look at the database.
#[derive(Debug)]
pub(crate) struct Tokens {
    style: &'static str,
    /// Chosen once per boot, so it does not change while this process lives.
    base: i64,
    /// A horizon that was read from the database, and so is committed; the true one is never lower.
    horizon: AtomicI64,
    /// The last token of this process: of two in one transaction, the later one is larger, too.
    last: AtomicI64,
}

impl Tokens {
    pub(crate) fn new(style: &'static str, base: i64) -> Self {
        Self { style, base, horizon: AtomicI64::new(i64::MIN), last: AtomicI64::new(0) }
    }

    /// The next place or token, in the present transaction: the shared clock, read while we have the write lock, is later
    /// than at every commit before. (Two grants of one lock are commits apart, which take many microseconds.)
    pub(crate) fn next(&self, connection: &Connection, time: &Time) -> Sql<i64> {
        let clock = self.base.saturating_add(micros(time.now()));
        let next = clock.max(self.last.load(Relaxed).saturating_add(1));
        self.last.store(next, Relaxed);
        if next > self.horizon.load(Relaxed) {
            let mut read =
                connection.prepare_cached("SELECT horizon FROM lockkeeper_counter WHERE style = ?1")?;
            let horizon = read.query_row([self.style], |row| row.get(0))?;
            self.horizon.store(horizon, Relaxed);
            if next > horizon {
                let raised = next.saturating_add(HORIZON_MICROS);
                let mut raise = connection
                    .prepare_cached("UPDATE lockkeeper_counter SET horizon = ?1 WHERE style = ?2")?;
                raise.execute((raised, self.style))?;
            }
        }
        Ok(next)
    }

    /// A transaction was rolled back in which several tokens were taken: the later ones may have read a horizon that the
    /// earlier ones had raised.
    pub(crate) fn rolled_back(&self) {
        self.horizon.store(i64::MIN, Relaxed);
    }
}
