//! The floor of SQLite: an INSERT and a DELETE, each committed, with the engine's settings.

use super::Pairs;
use super::file::directory_beside;
use crate::Result;
use futures_util::future::BoxFuture;
use lockkeeper_core::engine::Address;
use rusqlite::Connection;
use std::sync::{Mutex, PoisonError};
use tempfile::TempDir;

/// A database beside the engine's, hence on the same file system.
pub(crate) struct InsertAndDelete {
    connection: Mutex<Connection>,
    // Removed after the connection is closed.
    _directory: TempDir,
}

impl InsertAndDelete {
    pub(crate) fn beside(address: &Address) -> Result<Self> {
        let directory = directory_beside(address)?;
        let connection = Connection::open(directory.path().join("floor.db"))?;
        connection.query_row(include_str!("sqlite/journal.sql"), [], |_| Ok(()))?;
        connection.execute_batch(include_str!("sqlite/schema.sql"))?;
        Ok(Self { connection: Mutex::new(connection), _directory: directory })
    }
}

impl Pairs for InsertAndDelete {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let lock = i64::try_from(lock)?;
            {
                let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
                connection.prepare_cached(include_str!("sqlite/insert.sql"))?.execute([lock])?;
                connection.prepare_cached(include_str!("sqlite/delete.sql"))?.execute([lock])?;
            }
            // As an engine must: a loop of locks may not starve its neighbours.
            tokio::task::consume_budget().await;
            Ok(())
        })
    }
}
