//! Renewals: all claims of a keeper in one request.

use crate::pool::Pool;
use crate::queue::microseconds;
use crate::wire::Work;
use crate::{several, text};
use lockkeeper_core::{Claim, ClaimId, Kept, Renewal, Result};
use mysql_async::prelude::Queryable;
use std::collections::{BTreeMap, HashSet};

/// Sends what renews and, if it did not find them all, what asks which are alive.
pub(crate) async fn keep(
    pool: &Pool,
    update: &'static str,
    alive: &'static str,
    renewals: &[Renewal],
) -> Result<Kept> {
    // All with the same TTL, but for fixed leases: one request.
    let mut by_ttl: BTreeMap<u64, Vec<&Claim>> = BTreeMap::new();
    for renewal in renewals {
        by_ttl.entry(microseconds(renewal.ttl)).or_default().push(&renewal.claim);
    }
    let mut dead = Vec::new();
    for (ttl_us, claims) in by_ttl {
        let names = text::names(claims.iter().map(|claim| claim.name.as_str()));
        let ids = text::ids(claims.iter().map(|claim| claim.id));
        let fill = |text: &str| text.replace("{names}", &names).replace("{ids}", &ids);
        let update = fill(update).replace("{ttl_us}", &ttl_us.to_string());
        let (alive, wanted) = (fill(alive), claims.len() as u64);
        let work: Work<Option<Vec<String>>> = Box::new(move |conn| {
            let (update, alive) = (update.clone(), alive.clone());
            Box::pin(async move {
                if several::run::<mysql_async::Row>(conn, update).await?.1 == wanted {
                    return Ok(None);
                }
                conn.query(alive).await.map(Some)
            })
        });
        let kept = pool.run("renew", work).await?;
        if let Some(kept) = kept {
            let kept: HashSet<ClaimId> = kept.iter().filter_map(|id| id.parse().ok()).collect();
            dead.extend(claims.iter().map(|claim| claim.id).filter(|id| !kept.contains(id)));
        }
    }
    Ok(Kept { dead, as_of: None })
}
