//! The locks in use, for operators.

use crate::claim_file::{ClaimName, Content};
use crate::error::from_errno;
use crate::look::{self, Verdict};
use crate::shard::{Shard, Shards};
use lockkeeper_core::engine::{Clock, Moment};
use lockkeeper_core::{ClaimView, Holder, LockView, Result, Standing, Token};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// The locks in use whose name begins with the prefix, by name. The dead are cleared away and not shown; what is
/// being made is neither.
pub(crate) fn list(shards: &Shards, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
    let mut locks: BTreeMap<String, Vec<(ClaimName, Content)>> = BTreeMap::new();
    for index in 0..=u8::MAX {
        let path = Shard::path(&shards.config, index);
        let claims = match Shard::open(&shards.config, index).and_then(|shard| living(&shard)) {
            Err(Errno::NOENT) => continue,
            claims => claims.map_err(|errno| from_errno("list locks", &path, errno))?,
        };
        for (name, content) in claims.into_iter().filter(|(_, content)| content.name.starts_with(prefix)) {
            locks.entry(content.name.clone()).or_default().push((name, content));
        }
    }
    let now = Clock::Boot.now();
    Ok(locks.into_iter().take(at_most).map(|(lock, claims)| view(lock, claims, now)).collect())
}

fn living(shard: &Shard) -> Result<Vec<(ClaimName, Content)>, Errno> {
    let mut living = Vec::new();
    for name in shard.claims()? {
        if let Verdict::Alive(content) = look::inspect(shard, &name)? {
            living.push((name, content));
        }
    }
    Ok(living)
}

fn view(lock: String, mut claims: Vec<(ClaimName, Content)>, now: Moment) -> LockView {
    claims.sort_unstable_by_key(|(name, _)| name.place);
    let claims = claims.into_iter().map(|(name, content)| {
        ClaimView::new(
            name.id.to_string(),
            Standing::Waits,
            content.demand.unwrap_or(name.demand),
            Holder::decode(&content.holder),
        )
        .token(Some(Token(name.place)))
        .age(Some(now.since(content.joined_at)))
        .held_for(content.granted_at.map(|granted_at| now.since(granted_at)))
        .ttl_left(Some(content.expires_at).filter(|at| *at != Moment::NEVER).map(|at| at.since(now)))
    });
    LockView::from_queue(lock, claims.collect())
}
