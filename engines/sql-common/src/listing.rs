//! From rows of claims to the view of locks.

use lockkeeper_core::{ClaimView, Demand, Holder, LockView, Standing, Token};
use std::time::Duration;

/// One claim as a database has it.
#[derive(Debug, Clone)]
pub struct ClaimRow {
    /// The lock.
    pub name: String,
    /// The claim's id.
    pub id: String,
    /// Its demand, as text.
    pub demand: String,
    /// Its holder, encoded.
    pub holder: String,
    /// Its token.
    pub token: i64,
    /// How long ago it joined.
    pub age_ms: i64,
    /// How long ago it was granted, if that is known. A claim that is only there while it holds need not say.
    pub held_ms: Option<i64>,
    /// How long it still lives; `None` if it lives as long as its connection.
    pub left_ms: Option<i64>,
}

fn milliseconds(number: i64) -> Duration {
    Duration::from_millis(number.max(0).unsigned_abs())
}

impl ClaimRow {
    fn view(self) -> ClaimView {
        ClaimView::new(
            self.id,
            Standing::Waits,
            self.demand.parse().unwrap_or(Demand::Exclusive),
            Holder::decode(&self.holder),
        )
        .token(Some(Token(self.token.max(0).unsigned_abs())))
        .age(Some(milliseconds(self.age_ms)))
        .held_for(self.held_ms.map(milliseconds))
        .ttl_left(self.left_ms.map(milliseconds))
    }
}

/// A lock that another program has, on a session of this number.
pub fn foreign_lock(name: &str, session: u64, holder: Holder) -> LockView {
    let row = ClaimRow {
        name: name.into(),
        id: format!("session-{session}"),
        demand: Demand::Exclusive.to_string(),
        holder: holder.encode(),
        token: 0,
        age_ms: 0,
        held_ms: None,
        left_ms: None,
    };
    let claim = row.view().token(None).age(None).foreign(true);
    LockView::from_queue(name, vec![claim])
}

/// Groups rows, which are sorted by name and place, into locks.
pub fn lock_views(rows: impl IntoIterator<Item = ClaimRow>) -> Vec<LockView> {
    let mut locks: Vec<(String, Vec<ClaimView>)> = Vec::new();
    for row in rows {
        match locks.last_mut() {
            Some((name, claims)) if *name == row.name => claims.push(row.view()),
            _ => locks.push((row.name.clone(), vec![row.view()])),
        }
    }
    locks.into_iter().map(|(name, claims)| LockView::from_queue(name, claims)).collect()
}
