//! The floors of MySQL and MariaDB: a row inserted and deleted, each committed, or GET_LOCK and RELEASE_LOCK.

use super::Pairs;
use crate::{Result, counters};
use futures_util::future::BoxFuture;
use lockkeeper_core::engine::Address;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::sync::Mutex;

/// As many connections as the engine's tables get.
const CONNECTIONS: usize = 8;

/// Two statements on each of some connections, which serve one task at a time, as the protocol wants it.
pub(crate) struct TwoStatements {
    connections: Vec<Mutex<Conn>>,
    first: &'static str,
    second: &'static str,
    /// What the first one must answer.
    wanted: Option<i64>,
    prefix: String,
}

impl TwoStatements {
    /// INSERT and DELETE.
    pub(crate) async fn rows(address: &Address) -> Result<Self> {
        let mut connection = counters::mysql::connect(address).await?;
        connection.query_drop(include_str!("mysql/schema.sql")).await?;
        let (insert, delete) = (include_str!("mysql/insert.sql"), include_str!("mysql/delete.sql"));
        Self::connect(address, CONNECTIONS, insert, delete, None).await
    }

    /// `GET_LOCK` and `RELEASE_LOCK`; one session holds all of them. Not to read the reply of the first (`DO
    /// GET_LOCK`) is quicker, but then the client does not know whether it has the lock.
    pub(crate) async fn advisory(address: &Address) -> Result<Self> {
        let (lock, unlock) = (include_str!("mysql/lock.sql"), include_str!("mysql/unlock.sql"));
        Self::connect(address, 1, lock, unlock, Some(1)).await
    }

    async fn connect(
        address: &Address,
        count: usize,
        first: &'static str,
        second: &'static str,
        wanted: Option<i64>,
    ) -> Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..count {
            connections.push(Mutex::new(counters::mysql::connect(address).await?));
        }
        Ok(Self { connections, first, second, wanted, prefix: format!("{:016x}", rand::random::<u64>()) })
    }
}

impl Pairs for TwoStatements {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let connection = &self.connections[lock % self.connections.len()];
            let name = format!("{}-{lock}", self.prefix);
            let answer: Option<i64> = connection.lock().await.exec_first(self.first, (&name,)).await?;
            if answer != self.wanted {
                return Err(
                    format!("the raw lock was not free: {} says {answer:?}", self.first.trim()).into()
                );
            }
            connection.lock().await.exec_drop(self.second, (&name,)).await?;
            Ok(())
        })
    }
}
