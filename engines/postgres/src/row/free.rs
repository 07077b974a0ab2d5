//! How rows are freed: what many tasks free while requests are under way is freed together, with one commit for all.

use super::{AT_MOST, AT_ONCE, FREE, FREE_MANY, home};
use crate::fault::{ENGINE, was_refused};
use crate::link::Link;
use crate::pool::Links;
use futures_util::future::join_all;
use lockkeeper_core::{Batch, Batcher, ClaimId, Error, LockName, Result};
use std::collections::HashSet;
use std::sync::Arc;

/// One claim on its way out.
pub(super) struct Leaving {
    pub(super) name: LockName,
    pub(super) id: ClaimId,
    /// The link that took it.
    pub(super) link: usize,
}

/// Frees rows.
pub(super) struct Frees(Arc<Links>);

impl Frees {
    /// Together with what others free meanwhile.
    pub(super) fn together(links: &Arc<Links>) -> Batcher<Self> {
        Batcher::new(Self(Arc::clone(links)), home(), AT_ONCE)
    }

    /// Whether the claim had the row, and has left.
    pub(super) async fn one(link: &Link, name: &LockName, id: ClaimId, doing: &'static str) -> Result<bool> {
        let session = link.session().await?;
        let _under_way = link.under_way();
        let rows = session.rows(FREE, &[&name.as_str(), &id.to_string()], doing).await?;
        Ok(!rows.is_empty())
    }

    /// Those who had a row, and have left.
    async fn many(&self, leavings: &[Leaving]) -> Result<HashSet<ClaimId>> {
        let link = self.0.at(self.0.idlest());
        let session = link.session().await?;
        let _under_way = link.under_way();
        let names: Vec<&str> = leavings.iter().map(|leaving| leaving.name.as_str()).collect();
        let ids: Vec<String> = leavings.iter().map(|leaving| leaving.id.to_string()).collect();
        let rows = session.rows(FREE_MANY, &[&names, &ids], "free locks").await?;
        Ok(rows.iter().filter_map(|row| row.get::<_, &str>(0).parse().ok()).collect())
    }

    async fn alone(&self, Leaving { name, id, link }: &Leaving) -> Result<bool> {
        Self::one(self.0.at(*link), name, *id, "free the lock").await
    }
}

impl Batch for Frees {
    type Ask = Leaving;
    type Answer = Result<bool>;

    fn at_most(&self) -> usize {
        AT_MOST
    }

    async fn send(&self, leavings: &[Leaving]) -> Vec<Result<bool>> {
        if let [leaving] = leavings {
            return vec![self.alone(leaving).await];
        }
        match self.many(leavings).await {
            Ok(left) => leavings.iter().map(|leaving| Ok(left.contains(&leaving.id))).collect(),
            // One must not fail for the others.
            Err(error) if was_refused(&error) => {
                join_all(leavings.iter().map(|leaving| self.alone(leaving))).await
            }
            // They may have left: asked again, each would hear that its hold was lost.
            Err(error) => {
                let told = error.to_string();
                let unknown = || Err(Error::temporary(ENGINE, "free the lock", told.clone()));
                leavings.iter().map(|_| unknown()).collect()
            }
        }
    }

    async fn send_alone(&self, leaving: Leaving) -> Option<Result<bool>> {
        Some(self.alone(&leaving).await)
    }
}
