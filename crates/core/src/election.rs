//! The election: candidates queue up, the first one leads until it resigns or is lost.

use crate::engine::{ClaimView, Standing};
use crate::error::Result;
use crate::guard::Guard;
use crate::keeper::Keeper;

/// One candidate at a time leads; see [`Keeper::election`]. A candidate's proposal is its keeper's holder text.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// # use lockkeeper_core::{Keeper, engine::Memory};
/// let keeper = Keeper::builder().holder("replica-1").build(Memory::engine())?;
/// let election = keeper.election("scheduler");
/// let leading = election.campaign().await?;
/// assert_eq!(election.leader().await?.unwrap().holder.text, "replica-1");
/// leading.release().await?; // resigns
/// assert!(election.leader().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Election {
    keeper: Keeper,
    name: String,
}

impl Election {
    pub(crate) fn new(keeper: Keeper, name: String) -> Self {
        Self { keeper, name }
    }

    /// Waits until this candidate leads. Releasing the guard resigns; `lost` says that it no longer leads.
    ///
    /// Cancel safety: dropping the future withdraws.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn campaign(&self) -> Result<Guard> {
        self.keeper.mutex(&self.name).lock().await
    }

    /// Who leads, if anybody does.
    ///
    /// Cancel safety: dropping the future has no effect.
    ///
    /// # Errors
    /// [`Error::Engine`](crate::Error::Engine) when the engine does not answer.
    pub async fn leader(&self) -> Result<Option<ClaimView>> {
        let locks = self.keeper.inspect(&self.name).await?;
        let lock = locks.into_iter().find(|lock| lock.name == self.name);
        Ok(lock.and_then(|lock| lock.claims.into_iter().find(|claim| claim.standing == Standing::Holds)))
    }
}
