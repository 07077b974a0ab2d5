//! Ends claims whose keeper has stopped renewing them although the session lives on.

use crate::common::Common;
use std::sync::{Arc, Weak};

/// Looks for lapsed claims as long as the engine is there.
///
/// A session is kept alive by its connection, whoever renews. So that a claim ends with its TTL, as on every
/// engine, and a fixed lease with its own, the engine takes away what was not renewed. The keeper has stopped
/// trusting such a claim before.
pub(crate) fn start(common: &Arc<Common>) {
    let every = common.sessions.timeout() / 15;
    let common = Arc::downgrade(common);
    lockkeeper_core::background::handle().spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            let Some(common) = Weak::upgrade(&common) else { return };
            end_the_lapsed(&common).await;
        }
    });
}

async fn end_the_lapsed(common: &Common) {
    for (id, node) in common.book.lapsed() {
        let Some(session) = common.sessions.living(node.session) else {
            common.book.forget(id);
            continue;
        };
        // If it fails, it is tried again, or the session is over by then.
        if common.remove(&session, &node).await.is_ok() {
            tracing::debug!(claim = %id, "removed a claim that was not renewed");
            common.book.forget(id);
        }
    }
}
