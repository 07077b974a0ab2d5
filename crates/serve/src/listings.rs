//! Lists of the locks in use that all who look share, so that the engine does no more for many of them than for one.

use crate::error::Problem;
use crate::session::CLOCK;
use axum::http::StatusCode;
use lockkeeper_core::engine::Moment;
use lockkeeper_core::{Keeper, LockView};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How old a list may be, and so how often the engine is asked for one at most.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How many locks are in the list that all share.
pub(crate) const LOCKS: usize = 2_000;

/// The last lists. Clones are the same.
#[derive(Clone)]
pub(crate) struct Listings {
    keeper: Keeper,
    /// By prefix and length. Locked while the engine is asked, so that one request serves all who wait for it.
    last: Arc<Mutex<HashMap<(String, usize), Listing>>>,
}

/// What the engine listed, and when it was asked.
#[derive(Clone)]
struct Listing {
    began: Moment,
    locks: Result<Arc<Vec<LockView>>, Problem>,
}

impl Listing {
    /// Whether it does for somebody who asks at this moment.
    fn is_recent(&self, asked: Moment) -> bool {
        self.began.plus(LOOK_EVERY) > asked
    }
}

impl Listings {
    pub(crate) fn new(keeper: Keeper) -> Self {
        Self { keeper, last: Arc::default() }
    }

    /// The first locks in use, for somebody who asks at this moment, and when the list began.
    ///
    /// Cancel safety: when dropped, the list goes on for the others.
    pub(crate) async fn all(&self, asked: Moment) -> Result<(Arc<Vec<LockView>>, Moment), Problem> {
        self.listing("", LOCKS, asked).await
    }

    /// The locks in use whose names begin so, sorted, at most this many, as they were half a second before this call or later.
    ///
    /// Cancel safety: when dropped, the list goes on for the others.
    pub(crate) async fn recent(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>, Problem> {
        let asked = CLOCK.now();
        let (all, _) = self.all(asked).await?;
        let locks = if all.len() < LOCKS || (prefix.is_empty() && at_most <= LOCKS) {
            all
        } else {
            self.listing(prefix, at_most, asked).await?.0
        };
        let begins = |lock: &&LockView| lock.name.starts_with(prefix);
        Ok(locks.iter().filter(begins).take(at_most).cloned().collect())
    }

    async fn listing(
        &self,
        prefix: &str,
        at_most: usize,
        asked: Moment,
    ) -> Result<(Arc<Vec<LockView>>, Moment), Problem> {
        let (listings, key) = (self.clone(), (prefix.to_owned(), at_most));
        // A task of its own: who goes away meanwhile does not make the next one ask again.
        let listing = tokio::spawn(async move {
            let mut last = listings.last.lock().await;
            if let Some(listing) = last.get(&key).filter(|listing| listing.is_recent(asked)) {
                return listing.clone();
            }
            let began = CLOCK.now();
            let locks = listings.keeper.inspect_at_most(&key.0, key.1).await;
            let listing = Listing { began, locks: locks.map(Arc::new).map_err(Problem::from) };
            last.retain(|_, listing| listing.is_recent(began));
            last.insert(key, listing.clone());
            listing
        });
        match listing.await {
            Ok(listing) => listing.locks.map(|locks| (locks, listing.began)),
            Err(_) => Err(Problem::new(
                StatusCode::BAD_GATEWAY,
                "engine_failed",
                "the locks could not be listed: look at the server's log",
            )),
        }
    }
}
