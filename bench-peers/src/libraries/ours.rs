//! lockkeeper itself.

use super::{Client, Held, Place};
use futures_util::future::{BoxFuture, FutureExt};
use lockkeeper::{Connect, Guard, Keeper, State};
use lockkeeper_bench::Result;
use std::sync::Arc;

struct Ours {
    keeper: Keeper,
    /// Whether it is the write lock of a read-write lock.
    writes: bool,
}

struct Kept(Guard);

pub async fn connect(place: &Place, writes: bool) -> Result<Arc<dyn Client>> {
    let keeper = Connect::to(&place.url).holder("bench-peers").ttl(place.ttl).connect().await?;
    Ok(Arc::new(Ours { keeper, writes }))
}

impl Client for Ours {
    fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Box<dyn Held + 'a>>> {
        Box::pin(async move {
            let guard = if self.writes {
                self.keeper.rwlock(name).write().await?
            } else {
                self.keeper.mutex(name).lock().await?
            };
            Ok(Box::new(Kept(guard)) as Box<dyn Held + 'a>)
        })
    }
}

impl Held for Kept {
    fn release<'a>(self: Box<Self>) -> BoxFuture<'a, Result<()>>
    where
        Self: 'a,
    {
        Box::pin(async move { Ok(self.0.release().await?) })
    }

    fn token(&self) -> Option<u64> {
        self.0.token().ok().and_then(|token| token.to_string().parse().ok())
    }

    fn check(&self) -> BoxFuture<'_, Option<bool>> {
        Box::pin(std::future::ready(Some(self.0.state() != State::Lost)))
    }

    fn lost(&self) -> BoxFuture<'static, ()> {
        self.0.lost_signal().map(|_| ()).boxed()
    }
}
