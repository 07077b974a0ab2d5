//! The locks in use, for operators.

use crate::claims::parsed;
use crate::error::Sql;
use crate::time::{Time, between};
use lockkeeper_core::{ClaimView, Demand, Holder, LockView, Standing, Token};
use rusqlite::Connection;

/// Every claim from this name on, by lock and place.
const QUEUES: &str = "SELECT lock, place, id, demand, who, host, pid, joined_at, expires_at, granted_at \
                      FROM lockkeeper_claims WHERE lock >= ?1 ORDER BY lock, place";
const ROWS: &str = "SELECT lock, token, id, who, host, pid, locked_at, expires_at \
                    FROM lockkeeper_rows WHERE lock >= ?1 ORDER BY lock";

/// The locks of the style 'queue' whose name begins with the prefix.
pub(crate) fn queues(
    connection: &Connection,
    time: &Time,
    prefix: &str,
    at_most: usize,
) -> Sql<Vec<LockView>> {
    let now = time.now();
    let mut list = connection.prepare_cached(QUEUES)?;
    let mut rows = list.query([prefix])?;
    let mut locks: Vec<(String, Vec<ClaimView>)> = Vec::new();
    while let Some(row) = rows.next()? {
        let lock: String = row.get(0)?;
        if !lock.starts_with(prefix) {
            break;
        }
        let expires_at: i64 = row.get(8)?;
        if expires_at <= now {
            continue;
        }
        if locks.last().is_none_or(|(name, _)| *name != lock) {
            if locks.len() == at_most {
                break;
            }
            locks.push((lock, Vec::new()));
        }
        if let Some((_, claims)) = locks.last_mut() {
            let holder = Holder { text: row.get(4)?, host: row.get(5)?, pid: row.get(6)? };
            let granted_at: Option<i64> = row.get(9)?;
            let view = ClaimView::new(row.get::<_, String>(2)?, Standing::Waits, parsed(row, 3)?, holder)
                .token(Some(Token(row.get::<_, i64>(1)?.unsigned_abs())))
                .age(Some(between(row.get(7)?, now)))
                .held_for(granted_at.map(|granted_at| between(granted_at, now)))
                .ttl_left(Some(between(now, expires_at)));
            claims.push(view);
        }
    }
    Ok(locks.into_iter().map(|(name, claims)| LockView::from_queue(name, claims)).collect())
}

/// The locks of the style 'row' whose name begins with the prefix.
pub(crate) fn rows(connection: &Connection, time: &Time, prefix: &str, at_most: usize) -> Sql<Vec<LockView>> {
    let now = time.now();
    let mut list = connection.prepare_cached(ROWS)?;
    let mut rows = list.query([prefix])?;
    let mut locks = Vec::new();
    while let Some(row) = rows.next()? {
        let lock: String = row.get(0)?;
        if !lock.starts_with(prefix) || locks.len() == at_most {
            break;
        }
        let expires_at: i64 = row.get(7)?;
        if expires_at <= now {
            continue;
        }
        let holder = Holder { text: row.get(3)?, host: row.get(4)?, pid: row.get(5)? };
        let claim = ClaimView::new(row.get::<_, String>(2)?, Standing::Holds, Demand::Exclusive, holder)
            .token(Some(Token(row.get::<_, i64>(1)?.unsigned_abs())))
            .age(Some(between(row.get(6)?, now)))
            .ttl_left(Some(between(now, expires_at)));
        locks.push(LockView::new(lock, vec![claim]));
    }
    Ok(locks)
}
