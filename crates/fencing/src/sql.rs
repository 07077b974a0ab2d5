//! A fence in a SQL database: compared and raised by the transaction that reads or writes.
//!
//! Either a table of fences beside the data ([`FENCES`], then [`RAISE`] first in every transaction), or a column in the
//! row that is protected ([`ROW_READ`], [`ROW_WRITE`], to be copied for tables of one's own). Both with the token of
//! the guard, at reads, too: a read that does not raise the fence lets an earlier holder's late write pass.
//!
//! The texts are for any driver. With the feature `sqlite` there is a helper for `rusqlite`, `access`, with an example.
//!
//! # PostgreSQL
//!
//! ```
//! use lockkeeper_fencing::sql;
//!
//! # let server = lockkeeper_testkit::Postgres::start();
//! # let url = server.url();
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let keeper = lockkeeper::connect(&url).await?;
//! let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
//! tokio::spawn(connection);
//! client.batch_execute(sql::FENCES).await?; // once, where the other tables are made
//! # client.batch_execute("CREATE TABLE stock (amount BIGINT); INSERT INTO stock VALUES (5)").await?;
//!
//! let guard = keeper.mutex("stock").lock().await?;
//! let token = i64::try_from(guard.token()?)?;
//! let transaction = client.transaction().await?;
//! let is_latest = transaction.execute(sql::RAISE, &[&"stock", &token]).await? == 1;
//! if is_latest {
//!     transaction.execute("UPDATE stock SET amount = amount - 1", &[]).await?;
//! }
//! transaction.commit().await?;
//! guard.release().await?;
//! assert!(is_latest);
//!
//! // A holder of before, that does not know yet that it has lost the lock:
//! assert_eq!(client.execute(sql::RAISE, &[&"stock", &(token - 1)]).await?, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # MySQL and MariaDB
//!
//! ```
//! use lockkeeper_fencing::sql;
//! use mysql_async::prelude::Queryable;
//!
//! # let server = lockkeeper_testkit::MariaDb::start();
//! # let url = server.url();
//! # let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! let keeper = lockkeeper::connect(&url).await?;
//! let mut connection = mysql_async::Conn::from_url(&url).await?;
//! connection.query_drop(sql::FENCES).await?; // once, where the other tables are made
//! # connection.query_drop("CREATE TABLE stock (amount BIGINT)").await?;
//! # connection.query_drop("INSERT INTO stock VALUES (5)").await?;
//!
//! let guard = keeper.mutex("stock").lock().await?;
//! let token = i64::try_from(guard.token()?)?;
//! let mut transaction = connection.start_transaction(Default::default()).await?;
//! transaction.exec_drop(sql::MYSQL_RAISE, ("stock", token)).await?;
//! let highest: Option<i64> = transaction.exec_first(sql::MYSQL_HIGHEST, ("stock",)).await?;
//! let is_latest = highest == Some(token);
//! if is_latest {
//!     transaction.query_drop("UPDATE stock SET amount = amount - 1").await?;
//! }
//! transaction.commit().await?;
//! guard.release().await?;
//! assert!(is_latest);
//!
//! // A holder of before, that does not know yet that it has lost the lock:
//! connection.exec_drop(sql::MYSQL_RAISE, ("stock", token - 1)).await?;
//! let highest: Option<i64> = connection.exec_first(sql::MYSQL_HIGHEST, ("stock",)).await?;
//! assert_eq!(highest, Some(token));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
