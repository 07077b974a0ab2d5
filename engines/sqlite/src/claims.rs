//! One lock's queue as rows. Only this engine applies the rule outside of the core: its clients grant to each other.

use crate::error::Sql;
use crate::wake::Wakeup;
use lockkeeper_core::Demand;
use lockkeeper_core::engine::{ClaimId, grant};
use rusqlite::Connection;

const LOOK: &str =
    "SELECT place, id, demand, wake, expires_at, asked FROM lockkeeper_claims WHERE lock = ?1 ORDER BY place";

/// One claim in a queue.
#[derive(Debug, Clone)]
pub(crate) struct ClaimRow {
    pub(crate) place: i64,
    pub(crate) id: ClaimId,
    pub(crate) demand: Demand,
    pub(crate) wake: String,
    pub(crate) expires_at: i64,
    /// Somebody asks for it to be released.
    pub(crate) asked: bool,
}

impl ClaimRow {
    pub(crate) fn wakeup(&self) -> Wakeup {
        Wakeup { wake: self.wake.clone(), id: self.id }
    }
}

/// Room that became free: this much, at this place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Freed {
    pub(crate) place: i64,
    pub(crate) weight: u64,
}

/// The queue of one lock, in order.
#[derive(Debug, Default)]
pub(crate) struct Claims(pub(crate) Vec<ClaimRow>);

impl Claims {
    /// Reads it.
    pub(crate) fn read(connection: &Connection, lock: &str) -> Sql<Self> {
        let mut look = connection.prepare_cached(LOOK)?;
        let mut rows = look.query([lock])?;
        let mut claims = Vec::new();
        while let Some(row) = rows.next()? {
            claims.push(ClaimRow {
                place: row.get(0)?,
                id: parsed(row, 1)?,
                demand: parsed(row, 2)?,
                wake: row.get(3)?,
                expires_at: row.get(4)?,
                asked: row.get(5)?,
            });
        }
        Ok(Self(claims))
    }

    /// Takes the dead out of it and returns them.
    pub(crate) fn take_dead(&mut self, now: i64) -> Vec<ClaimRow> {
        self.0.extract_if(.., |claim| claim.expires_at <= now).collect()
    }

    /// A claim's index in it.
    pub(crate) fn find(&self, id: ClaimId) -> Option<usize> {
        self.0.iter().position(|claim| claim.id == id)
    }

    /// The weights ahead of the claim at the index.
    pub(crate) fn weights_ahead(&self, index: usize) -> Vec<u64> {
        self.0[..index].iter().map(|claim| claim.demand.weight()).collect()
    }

    /// Law 10: the claims that fit now and did not before this room became free.
    ///
    /// Exact only if the room became free in the transaction that read the queue: of two departures at once, the later
    /// one must not see the earlier one's room as its own.
    pub(crate) fn newly_fitting(&self, freed: &[Freed]) -> Vec<&ClaimRow> {
        let mut ahead = 0;
        let mut found = Vec::new();
        for claim in &self.0 {
            let (weight, limit) = (claim.demand.weight(), claim.demand.limit());
            if !grant::fits(ahead, weight, limit) {
                break;
            }
            let gone: u64 =
                freed.iter().filter(|freed| freed.place < claim.place).map(|freed| freed.weight).sum();
            if !grant::fits(ahead + gone, weight, limit) {
                found.push(claim);
            }
            ahead += weight;
        }
        found
    }
}

/// A column that holds the text of something; anything else in it is a conversion error.
pub(crate) fn parsed<T>(row: &rusqlite::Row<'_>, column: usize) -> Sql<T>
where
    T: std::str::FromStr<Err: ToString>,
{
    let text = row.get_ref(column)?.as_str().map_err(rusqlite::Error::from)?;
    text.parse().map_err(|error: T::Err| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Text,
            error.to_string().into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(demands: &[&str]) -> Claims {
        let claim = |(at, demand): (usize, &&str)| ClaimRow {
            place: at as i64 * 10,
            id: ClaimId(at as u128),
            demand: demand.parse().unwrap(),
            wake: String::new(),
            expires_at: 0,
            asked: false,
        };
        Claims(demands.iter().enumerate().map(claim).collect())
    }

    fn woken(demands: &[&str], freed: &[Freed]) -> Vec<u128> {
        claims(demands).newly_fitting(freed).iter().map(|claim| claim.id.0).collect()
    }

    #[test]
    fn a_departure_wakes_only_the_claims_that_now_fit() {
        let writer = Demand::Exclusive.weight();
        let head = [Freed { place: -1, weight: writer }];
        assert_eq!(woken(&["exclusive", "exclusive"], &head), [0]);
        assert_eq!(woken(&["shared", "shared", "exclusive", "shared"], &head), [0, 1]);
        // A waiter that gives up in the middle: neither the holder is woken, nor a claim that still waits.
        assert_eq!(
            woken(&["exclusive", "exclusive"], &[Freed { place: 5, weight: writer }]),
            [] as [u128; 0]
        );
        // A writer that gives up between readers lets those behind it in, and does not wake the holder.
        assert_eq!(woken(&["shared", "shared"], &[Freed { place: 5, weight: writer }]), [1]);
        // One of two permits is free again: the third claim fits, the first held all the time.
        assert_eq!(woken(&["1/2", "1/2", "1/2"], &[Freed { place: -1, weight: 1 }]), [1]);
        assert_eq!(woken(&["1/3", "2/3"], &[Freed { place: -1, weight: 1 }]), [1]);
    }
}
