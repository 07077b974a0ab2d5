//! Clears away what a create leaves behind that was held up on its way until after its claim had left.

use crate::leave::delete_by_id;
use crate::session::Session;
use lockkeeper_core::{Claim, Left};
use std::sync::Arc;
use std::time::Duration;

/// Looks again for the claim's nodes several times. A packet of a broken connection can come late, as long as the
/// session lives; one that comes even later than this goes with the session.
pub(crate) fn sweep_later(session: &Arc<Session>, directory: String, claim: Claim, limit: Duration) {
    // Must not keep the session alive.
    let session = Arc::downgrade(session);
    lockkeeper_core::background::handle().spawn(async move {
        let mut pause = claim.ttl / 8;
        while pause <= claim.ttl * 2 {
            tokio::time::sleep(pause).await;
            pause *= 2;
            let Some(session) = session.upgrade() else { return };
            if let Ok(Left::Left) = delete_by_id(&session, &directory, &claim, limit).await {
                tracing::debug!(claim = %claim.id, lock = %claim.name, "removed a node that came late");
            }
        }
    });
}
