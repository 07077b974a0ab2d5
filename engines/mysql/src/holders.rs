//! Session locks as the server's tables show them: listing, eviction, and the end of waits.

use crate::config::Settings;
use crate::pool::{Home, Pool};
use crate::queue::{ListRow, claim_row};
use lockkeeper_core::{ClaimId, LockName, LockView, Result};
use lockkeeper_sql_common::lock_views;
use mysql_async::prelude::Queryable;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The statements of a style.
#[derive(Clone, Copy)]
pub(crate) struct Texts {
    pub(crate) list: &'static str,
    pub(crate) find: &'static str,
    pub(crate) clean: &'static str,
}

/// Who holds what, of everybody.
pub(crate) struct Holders {
    pool: Pool,
    texts: Texts,
    closed: AtomicBool,
}

impl Holders {
    pub(crate) fn open(settings: &Arc<Settings>, texts: Texts) -> Arc<Self> {
        let pool = Pool::new(settings, Home::House, 2);
        let holders = Arc::new(Self { pool, texts, closed: AtomicBool::new(false) });
        lockkeeper_core::background::handle().spawn(clean(Arc::downgrade(&holders)));
        holders
    }

    /// The locks held by anybody.
    pub(crate) async fn list(&self, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
        let (prefix, list) = (prefix.as_bytes().to_vec(), self.texts.list);
        let rows: Vec<ListRow> = self
            .pool
            .run(
                "list locks",
                Box::new(move |conn| {
                    let params = (prefix.clone(), prefix.len(), prefix.clone(), at_most);
                    Box::pin(async move {
                        conn.query_drop("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").await?;
                        conn.exec(list, params).await
                    })
                }),
            )
            .await?;
        Ok(lock_views(rows.into_iter().map(claim_row)))
    }

    /// Ends the connection that holds the lock for this claim.
    pub(crate) async fn evict(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        let (name, find) = (name.as_str().as_bytes().to_vec(), self.texts.find);
        self.pool
            .run(
                "evict a claim",
                Box::new(move |conn| {
                    let params = (name.clone(), id.to_string());
                    Box::pin(async move {
                        conn.query_drop("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED").await?;
                        let Some(number) = conn.exec_first::<u64, _, _>(find, params).await? else {
                            return Ok(false);
                        };
                        conn.query_drop(format!("KILL CONNECTION {number}")).await?;
                        Ok(true)
                    })
                }),
            )
            .await
    }

    /// Ends what a connection waits for in the server.
    pub(crate) async fn interrupt(&self, number: u64) -> Result<()> {
        self.pool
            .run(
                "end a wait",
                Box::new(move |conn| {
                    Box::pin(async move { conn.query_drop(format!("KILL QUERY {number}")).await })
                }),
            )
            .await
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.pool.close();
    }
}

async fn clean(holders: std::sync::Weak<Holders>) {
    loop {
        tokio::time::sleep(Duration::from_secs(3600).mul_f64(rand::random_range(0.01..1.0))).await;
        let Some(holders) = holders.upgrade().filter(|holders| !holders.closed.load(SeqCst)) else { return };
        let clean = holders.texts.clean;
        let cleaned = holders.pool.run(
            "remove idle rows",
            Box::new(move |conn| Box::pin(async move { conn.query_drop(clean).await })),
        );
        if let Err(error) = cleaned.await {
            tracing::debug!(%error, "could not remove idle rows");
        }
    }
}
