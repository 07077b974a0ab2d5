//! The floor of RedLock: Redis's own on every node at once.

use super::Pairs;
use super::redis::SetAndDelete;
use crate::{Result, counters};
use futures_util::future::{BoxFuture, try_join_all};
use lockkeeper_core::engine::Address;

/// One connection to each node.
pub(crate) struct OnAllNodes(Vec<SetAndDelete>);

impl OnAllNodes {
    pub(crate) async fn connect(address: &Address) -> Result<Self> {
        let mut nodes = Vec::new();
        for node in counters::redis::nodes(address) {
            nodes.push(SetAndDelete::connect(&node).await?);
        }
        Ok(Self(nodes))
    }
}

impl Pairs for OnAllNodes {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            try_join_all(self.0.iter().map(|node| node.set(lock))).await?;
            try_join_all(self.0.iter().map(|node| node.delete(lock))).await?;
            Ok(())
        })
    }
}
