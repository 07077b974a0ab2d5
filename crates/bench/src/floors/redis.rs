//! The floor of Redis: SET NX PX, then compare-and-delete by EVALSHA, on one multiplexed connection.

use super::Pairs;
use crate::{Result, counters};
use futures_util::future::BoxFuture;
use lockkeeper_core::engine::Address;
use redis::Script;
use redis::aio::MultiplexedConnection;

/// Longer than any run.
const EXPIRY_MS: u64 = 600_000;

/// One connection for all locks, as the engine has.
pub(crate) struct SetAndDelete {
    connection: MultiplexedConnection,
    delete: Script,
    token: String,
}

impl SetAndDelete {
    pub(crate) async fn connect(address: &Address) -> Result<Self> {
        Ok(Self {
            connection: counters::redis::connect(address).await?,
            delete: Script::new(include_str!("compare_and_delete.lua")),
            token: format!("{:032x}", rand::random::<u128>()),
        })
    }

    fn key(&self, lock: usize) -> String {
        // The token keeps runs apart, should one have been cut short.
        format!("lockkeeper-bench-floor:{}:{lock}", self.token)
    }

    /// SET NX PX.
    pub(crate) async fn set(&self, lock: usize) -> Result<()> {
        let mut set = redis::cmd("SET");
        set.arg(self.key(lock)).arg(&self.token).arg("NX").arg("PX").arg(EXPIRY_MS);
        let set: Option<String> = set.query_async(&mut self.connection.clone()).await?;
        set.map(|_| ()).ok_or_else(|| "somebody else holds the floor's lock".into())
    }

    /// Compare and delete.
    pub(crate) async fn delete(&self, lock: usize) -> Result<()> {
        let mut connection = self.connection.clone();
        let deleted: u64 =
            self.delete.key(self.key(lock)).arg(&self.token).invoke_async(&mut connection).await?;
        if deleted == 1 { Ok(()) } else { Err("the floor's lock was gone before its release".into()) }
    }
}

impl Pairs for SetAndDelete {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.set(lock).await?;
            self.delete(lock).await
        })
    }
}
