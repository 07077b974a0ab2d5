//! The election: candidates queue up, the first one leads until it resigns or is lost; others may observe.

use crate::clock::Moment;
use crate::error::Result;
use crate::guard::Guard;
use crate::keeper::Keeper;
use crate::views::ClaimView;
use futures_util::stream::{self, BoxStream, Stream, StreamExt as _};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// One candidate at a time leads; see [`Keeper::election`]. A candidate's proposal is its keeper's holder text.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
/// # use lockkeeper_core::{Keeper, engine::Memory};
/// let keeper = Keeper::builder().holder("replica-1").build(Memory::engine())?;
/// let election = keeper.election("scheduler");
/// let leading = election.campaign().await?;
/// assert_eq!(election.leader().await?.unwrap().holder.text, "replica-1");
/// assert!(election.try_campaign().await?.is_none());
/// leading.release().await?; // resigns
/// assert!(election.leader().await?.is_none());
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is locked until a method that locks is called"]
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

    /// Leads if nobody else does or waits to.
    ///
    /// Cancel safety: dropping the future withdraws.
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign).
    pub async fn try_campaign(&self) -> Result<Option<Guard>> {
        self.keeper.mutex(&self.name).try_lock().await
    }

    /// Waits up to `limit` until this candidate leads; `None` when the time is over.
    ///
    /// Cancel safety: dropping the future withdraws.
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign).
    pub async fn campaign_within(&self, limit: Duration) -> Result<Option<Guard>> {
        self.keeper.mutex(&self.name).lock_within(limit).await
    }

    /// Who leads, if anybody does.
    ///
    /// Cancel safety: dropping the future has no effect.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a bad name, [`Error::Engine`](crate::Error::Engine) when the engine does
    /// not reply.
    pub async fn leader(&self) -> Result<Option<ClaimView>> {
        let lock = self.keeper.look(&self.name).await?;
        Ok(lock.and_then(|lock| lock.holders().next().cloned()))
    }

    /// The leaders from now on: first the present one, or `None` if nobody leads, then every change.
    ///
    /// It does not campaign. It looks at the engine twenty times per TTL (at least every second, at most every 100 ms), so a
    /// change is seen that much later, and who leads for less than that may be missed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lockkeeper_core::Result<()> {
    /// # use lockkeeper_core::{Keeper, engine::Memory};
    /// # let keeper = Keeper::builder().holder("replica-1").build(Memory::engine())?;
    /// let election = keeper.election("scheduler");
    /// let mut leaders = election.observe();
    /// assert!(leaders.changed().await?.is_none()); // nobody
    /// let leading = election.campaign().await?;
    /// let leader = leaders.changed().await?.unwrap();
    /// assert_eq!((leader.holder.text.as_str(), leader.token), ("replica-1", Some(leading.token()?)));
    /// # Ok(()) }
    /// ```
    pub fn observe(&self) -> Leaders {
        let observer = Observer { election: self.clone(), seen: None, has_looked: false, away_since: None };
        let changes = stream::unfold(observer, |mut observer| async move {
            let change = observer.changed().await;
            Some((change, observer))
        });
        Leaders(changes.boxed())
    }
}

/// The leaders of an election, one after the other; see [`Election::observe`]. It never ends.
///
/// Beside [`changed`](Self::changed) it is a [`Stream`] of the same items. While the engine does not reply nothing is said,
/// up to the keeper's outage limit; then each look that fails is an error, and the next good look goes on.
pub struct Leaders(BoxStream<'static, Result<Option<ClaimView>>>);

impl Leaders {
    /// The next leader, or `None` when nobody leads any more. The first call says who leads now.
    ///
    /// Cancel safety: dropping the future loses no change.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for a bad name, [`Error::Engine`](crate::Error::Engine) when the engine has not
    /// replied for the outage limit.
    pub async fn changed(&mut self) -> Result<Option<ClaimView>> {
        match self.0.next().await {
            Some(change) => change,
            None => std::future::pending().await,
        }
    }
}

impl Stream for Leaders {
    type Item = Result<Option<ClaimView>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Leaders")
    }
}

/// What an observer has seen so far.
struct Observer {
    election: Election,
    /// The claim that led at the last look; `None` before the first, `Some(None)` for nobody.
    seen: Option<Option<String>>,
    has_looked: bool,
    /// Since when the engine does not reply.
    away_since: Option<Moment>,
}

impl Observer {
    async fn changed(&mut self) -> Result<Option<ClaimView>> {
        let keeper = &self.election.keeper.0;
        let pause = (keeper.ttl / 20).clamp(Duration::from_millis(100), Duration::from_secs(1));
        loop {
            if std::mem::replace(&mut self.has_looked, true) {
                keeper.clock.sleep(pause).await;
            }
            match self.election.leader().await {
                Ok(leader) => {
                    self.away_since = None;
                    let id = leader.as_ref().map(|leader| leader.id.clone());
                    if self.seen.as_ref() != Some(&id) {
                        self.seen = Some(id);
                        return Ok(leader);
                    }
                }
                Err(error) => {
                    let now = keeper.clock.now();
                    let since = *self.away_since.get_or_insert(now);
                    if !error.is_temporary() || now.since(since) >= keeper.outage_limit {
                        return Err(error);
                    }
                }
            }
        }
    }
}
