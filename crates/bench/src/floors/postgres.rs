//! The floors of PostgreSQL: a row inserted and deleted, each committed, or an advisory lock taken and freed.

use super::Pairs;
use crate::{Result, counters};
use futures_util::future::BoxFuture;
use lockkeeper_core::engine::Address;
use tokio_postgres::{Client, Statement};

/// As many connections as the engine's tables get.
const CONNECTIONS: usize = 4;

/// Two prepared statements on each of some connections; requests are sent without waiting for the replies before.
pub(crate) struct TwoStatements {
    connections: Vec<Prepared>,
    prefix: String,
}

struct Prepared {
    client: Client,
    first: Statement,
    second: Statement,
}

impl TwoStatements {
    /// INSERT and DELETE.
    pub(crate) async fn rows(address: &Address) -> Result<Self> {
        let client = counters::postgres::connect(address).await?;
        client.batch_execute(include_str!("postgres/schema.sql")).await?;
        let (insert, delete) = (include_str!("postgres/insert.sql"), include_str!("postgres/delete.sql"));
        Self::connect(address, CONNECTIONS, insert, delete).await
    }

    /// `pg_try_advisory_lock` and `pg_advisory_unlock`; one session holds all of them.
    pub(crate) async fn advisory(address: &Address) -> Result<Self> {
        let (lock, unlock) = (include_str!("postgres/lock.sql"), include_str!("postgres/unlock.sql"));
        Self::connect(address, 1, lock, unlock).await
    }

    async fn connect(address: &Address, count: usize, first: &str, second: &str) -> Result<Self> {
        let mut connections = Vec::new();
        for _ in 0..count {
            let client = counters::postgres::connect(address).await?;
            let (first, second) = (client.prepare(first).await?, client.prepare(second).await?);
            connections.push(Prepared { client, first, second });
        }
        Ok(Self { connections, prefix: format!("{:016x}", rand::random::<u64>()) })
    }
}

impl Pairs for TwoStatements {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let Prepared { client, first, second } = &self.connections[lock % self.connections.len()];
            let name = format!("{}-{lock}", self.prefix);
            client.query(first, &[&name]).await?;
            client.query(second, &[&name]).await?;
            Ok(())
        })
    }
}
