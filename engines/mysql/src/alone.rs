//! Locks that nobody else wants: the claim stands in the lock's own row. Whoever finds company goes the long way.

use crate::config::Settings;
use crate::lane::{Joining, Lane, Texts};
use crate::pool::Pool;
use crate::queue::{microseconds, permits};
use crate::request::Value;
use lockkeeper_core::{ClaimId, Crowded, LockName, Place, Result};
use std::sync::{Arc, LazyLock};

static TEXTS: Texts = Texts {
    join: include_str!("sql/alone_join.sql"),
    row: include_str!("sql/alone_row.sql"),
    joined: include_str!("sql/alone_joined.sql"),
    leave: include_str!("sql/alone_leave.sql"),
    leave_many: include_str!("sql/alone_leave_many.sql"),
    values,
    alone: LazyLock::new(|| TEXTS.of_one()),
};

/// What a join is told, on the short way and on the long one: the note is the keeper's bell.
pub(crate) fn values(Joining { claim, note, .. }: &Joining) -> Vec<Value<'static>> {
    vec![
        claim.name.as_str().to_owned().into(),
        claim.id.to_string().into(),
        claim.demand.to_string().into(),
        Value::Number(claim.demand.weight()),
        Value::Number(claim.demand.limit()),
        Value::Number(permits(claim.demand)),
        claim.holder.encode().into(),
        note.clone().into(),
        Value::Number(microseconds(claim.ttl)),
    ]
}

/// The short way.
pub(crate) struct Alone {
    lane: Lane,
    /// Locks that others want, too, as far as we know: there the short way is a detour.
    crowded: Crowded,
}

impl Alone {
    pub(crate) fn new(settings: &Arc<Settings>, pool: &Arc<Pool>) -> Self {
        Self { lane: Lane::new(settings, pool, &TEXTS), crowded: Crowded::default() }
    }

    /// The claim's place if nobody else stands there; else `None`, and nothing was done.
    pub(crate) async fn join(&self, joining: &Arc<Joining>) -> Result<Option<Place>> {
        let name = &joining.claim.name;
        if self.crowded.contains(name) {
            return Ok(None);
        }
        let place = self.lane.join(Arc::clone(joining)).await?;
        self.crowded.note(name, place.is_none());
        Ok(place.map(Place))
    }

    /// Whether the claim stood alone, and has left.
    pub(crate) async fn leave(&self, name: &LockName, id: ClaimId) -> Result<bool> {
        if self.crowded.contains(name) {
            return Ok(false);
        }
        self.lane.leave(name, id).await
    }

    pub(crate) fn close(&self) {
        self.lane.close();
    }

    /// Nobody stands there any more.
    pub(crate) fn is_free(&self, name: &LockName) {
        self.crowded.note(name, false);
    }
}
