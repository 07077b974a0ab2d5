//! The floor of RedLock: Redis's own on every node at once; a majority's answers are enough to go on.

use super::Pairs;
use super::redis::SetAndDelete;
use crate::{Result, counters};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use lockkeeper::address::Address;

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

    /// Asks all, and returns when a majority has answered; the other requests are on their way.
    async fn majority(&self, answers: impl Iterator<Item = BoxFuture<'_, Result<()>>>) -> Result<()> {
        let mut answers: FuturesUnordered<_> = answers.collect();
        for _ in 0..=self.0.len() / 2 {
            answers.next().await.ok_or("there are no nodes")??;
        }
        Ok(())
    }
}

impl Pairs for OnAllNodes {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.majority(self.0.iter().map(|node| Box::pin(node.set(lock)) as BoxFuture<'_, _>)).await?;
            self.majority(self.0.iter().map(|node| Box::pin(node.delete(lock)) as BoxFuture<'_, _>)).await
        })
    }
}
