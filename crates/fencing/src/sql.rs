//! A fence in a SQL database: compared and raised by the transaction that reads or writes.
//!
//! Either a table of fences beside the data ([`FENCES`], then [`RAISE`] first in every transaction), or a column in the
//! row that is protected ([`ROW_READ`], [`ROW_WRITE`], to be copied for tables of one's own). Both with the token of
//! the guard, at reads, too: a read that does not raise the fence lets an earlier holder's late write pass.
//!
//! The texts are for any driver. With the feature `sqlite` there is a helper for `rusqlite`.

/// Makes the table of fences: SQLite, PostgreSQL, MySQL and MariaDB.
pub const FENCES: &str = include_str!("sql/fences.sql");

/// Compares and raises, in SQLite and PostgreSQL: resource, token. One row changed means: go on.
pub const RAISE: &str = include_str!("sql/raise.sql");

/// What the fence stands at, in SQLite and PostgreSQL: resource. For the message to the refused.
pub const HIGHEST: &str = include_str!("sql/highest.sql");

/// Raises, in MySQL and MariaDB: resource, token. To be followed by [`MYSQL_HIGHEST`].
pub const MYSQL_RAISE: &str = include_str!("sql/mysql_raise.sql");

/// What the fence stands at, in MySQL and MariaDB: resource. Larger than the own token means: stale.
pub const MYSQL_HIGHEST: &str = include_str!("sql/mysql_highest.sql");

/// A pattern: a read that raises the fence column of the row it reads.
pub const ROW_READ: &str = include_str!("sql/row_read.sql");

/// A pattern: a write that a larger fence in the row refuses.
pub const ROW_WRITE: &str = include_str!("sql/row_write.sql");

/// A pattern: a write that succeeds against the version it read only (see [`optimistic`](crate::optimistic)).
pub const VERSIONED_WRITE: &str = include_str!("sql/versioned_write.sql");

#[cfg(feature = "sqlite")]
pub use with_rusqlite::access;

#[cfg(feature = "sqlite")]
mod with_rusqlite {
    use crate::fence::{Refused, Stale};
    use lockkeeper_core::Token;
    use rusqlite::{Connection, Transaction, TransactionBehavior};

    /// Runs an access, read or write, in a transaction that has compared and raised the resource's fence. For `rusqlite`.
    ///
    /// The table of fences is made if it is not there.
    ///
    /// ```
    /// # use lockkeeper_core::Token;
    /// # use lockkeeper_fencing::sql;
    /// let mut stock = rusqlite::Connection::open_in_memory()?;
    /// stock.execute_batch("CREATE TABLE stock (amount INTEGER); INSERT INTO stock VALUES (5)")?;
    /// let read = |t: &rusqlite::Transaction<'_>| t.query_row("SELECT amount FROM stock", [], |row| row.get(0));
    /// let amount: i64 = sql::access(&mut stock, "stock", Token(2), read)?;
    /// let late = sql::access(&mut stock, "stock", Token(1), |t| t.execute("UPDATE stock SET amount = 9", []));
    /// assert!(late.unwrap_err().is_stale());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused::Stale`] if a later holder has been here; then nothing is changed. [`Refused::Resource`] when SQLite fails.
    pub fn access<T>(
        connection: &mut Connection,
        resource: &str,
        token: Token,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Refused<rusqlite::Error>> {
        // The write lock from the start, for reads, too: the comparison must stay true until the commit.
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(Refused::Resource)?;
        raise(&transaction, resource, token)?;
        let done = work(&transaction).map_err(Refused::Resource)?;
        transaction.commit().map_err(Refused::Resource)?;
        Ok(done)
    }

    fn raise(connection: &Connection, resource: &str, token: Token) -> Result<(), Refused<rusqlite::Error>> {
        let number = i64::try_from(token.0).unwrap_or(i64::MAX);
        let raised = connection
            .execute_batch(super::FENCES)
            .and_then(|()| connection.prepare_cached(super::RAISE)?.execute((resource, number)));
        if raised.map_err(Refused::Resource)? > 0 {
            return Ok(());
        }
        let highest = connection.query_row(super::HIGHEST, [resource], |row| row.get::<_, i64>(0));
        let highest = Token(highest.map_err(Refused::Resource)?.unsigned_abs());
        Err(Stale { token, highest }.into())
    }
}
