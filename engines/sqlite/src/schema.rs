//! The tables, their version, and what happens to them after a boot of the machine.

use crate::error::Sql;
use crate::time::{Time, micros, wall_micros};
use rusqlite::{Connection, OptionalExtension as _};

/// The tables of one style. The version is stored in `lockkeeper_counter`, not in `PRAGMA user_version`, which belongs to
/// the application that the file may be shared with.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) style: &'static str,
    /// The statements that make the present version.
    pub(crate) create: &'static str,
    /// What turns version 1 into 2, 2 into 3, and so on. Each must leave the tables usable for processes of the version
    /// before, which may be at work.
    pub(crate) steps: &'static [&'static str],
    /// Removes every claim.
    pub(crate) forget_all: &'static str,
}

/// Why the tables cannot be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    Sql(rusqlite::Error),
    /// The reason, as a sentence.
    Other(String),
}

impl From<rusqlite::Error> for Unusable {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Schema {
    /// The version that this release makes and uses.
    pub(crate) const fn version(&self) -> i64 {
        self.steps.len() as i64 + 1
    }

    /// Makes the tables, or brings older ones to the present version. To be called in a transaction, so that of several
    /// processes one does it.
    pub(crate) fn prepare(&self, connection: &Connection) -> Result<(), Unusable> {
        let Some(found) = self.found(connection)? else {
            return Ok(connection.execute_batch(self.create)?);
        };
        let (style, known) = (self.style, self.version());
        if found > known {
            return Err(Unusable::Other(format!(
                "its tables of the style '{style}' have version {found}, made by a later release of lockkeeper; this \
                 one knows versions up to {known}: use the later release, or another file"
            )));
        }
        if found < known {
            let mut steps = self.steps.iter().skip(usize::try_from(found - 1).unwrap_or(0));
            steps.try_for_each(|step| connection.execute_batch(step))?;
            let raise = "UPDATE lockkeeper_counter SET layout = ?1 WHERE style = ?2";
            connection.execute(raise, (known, style))?;
            tracing::info!(style, from = found, to = known, "brought the tables to the present version");
        }
        Ok(())
    }

    /// The version of the tables that are there.
    fn found(&self, connection: &Connection) -> Sql<Option<i64>> {
        if !connection.table_exists(None, "lockkeeper_counter")? {
            return Ok(None);
        }
        let read = "SELECT layout FROM lockkeeper_counter WHERE style = ?1";
        connection.query_row(read, [self.style], |row| row.get(0)).optional()
    }

    /// Returns the base of this boot's tokens. The first caller after a boot removes every claim, for their clock is gone,
    /// and chooses the base so that tokens go on growing: beyond the horizon, and beyond the wall clock in case a power cut
    /// has undone the horizon. To be called in a transaction.
    pub(crate) fn enter_boot(&self, connection: &Connection, time: &Time) -> Sql<i64> {
        let read = "SELECT horizon, base, boot FROM lockkeeper_counter WHERE style = ?1";
        let (horizon, base, boot): (i64, i64, String) =
            connection.query_row(read, [self.style], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        if boot == time.boot {
            return Ok(base);
        }
        let start = horizon.saturating_add(1).max(wall_micros());
        let base = start.saturating_sub(micros(time.now()));
        let change = "UPDATE lockkeeper_counter SET boot = ?1, base = ?2 WHERE style = ?3";
        connection.execute(change, (&time.boot, base, self.style))?;
        connection.execute(self.forget_all, [])?;
        Ok(base)
    }
}
