//! sqlx's PgAdvisoryLock, on connections of its pool.

use super::{Client, Held, Place};
use futures_util::future::BoxFuture;
use lockkeeper_bench::Result;
use sqlx::postgres::{PgAdvisoryLock, PgAdvisoryLockGuard, PgPool, PgPoolOptions};
use sqlx::{Connection, Postgres, pool::PoolConnection};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Longer than any run.
const PATIENCE: Duration = Duration::from_secs(60);

struct Pool(PgPool);

pub async fn connect(place: &Place) -> Result<Arc<dyn Client>> {
    // The pool's own maximum of 10 connections.
    Ok(Arc::new(Pool(PgPoolOptions::new().acquire_timeout(PATIENCE).connect(&place.url).await?)))
}

impl Client for Pool {
    fn lock<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Box<dyn Held + 'a>>> {
        Box::pin(async move {
            let lock = PgAdvisoryLock::new(name);
            let guard = lock.acquire(self.0.acquire().await?).await?;
            Ok(Box::new(Guard(Mutex::new(guard))) as Box<dyn Held + 'a>)
        })
    }
}

struct Guard(Mutex<PgAdvisoryLockGuard<PoolConnection<Postgres>>>);

impl Held for Guard {
    fn release<'a>(self: Box<Self>) -> BoxFuture<'a, Result<()>>
    where
        Self: 'a,
    {
        Box::pin(async move {
            self.0.into_inner().release_now().await?;
            Ok(())
        })
    }

    /// It has none of its own; a lock of the session is there as the session is.
    fn check(&self) -> BoxFuture<'_, Option<bool>> {
        Box::pin(async move { Some(self.0.lock().await.ping().await.is_ok()) })
    }
}
