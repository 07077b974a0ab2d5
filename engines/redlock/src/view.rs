//! What a majority of the nodes shows.

use crate::ENGINE;
use crate::ballot::quorum;
use crate::nodes::Nodes;
use crate::redlock::keys;
use crate::scripts;
use futures_util::future::join_all;
use lockkeeper_core::engine::ClaimId;
use lockkeeper_core::{ClaimView, Demand, Error, Holder, LockView, Result, Standing, Token};
use lockkeeper_redis::parts::{PlainKeys, error, foreign_text, integer, text};
use redis::{RedisError, RedisResult, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A hold as one node has it.
struct Hold {
    value: String,
    left: Option<Duration>,
    age: Option<Duration>,
    shared: bool,
    number: Option<u64>,
}

/// The locks in use, by name: what most of the nodes have.
pub(crate) async fn list(nodes: &Nodes, prefix: &str, at_most: usize) -> Result<Vec<LockView>> {
    let mut locks = Vec::new();
    for name in names(nodes, prefix).await? {
        let mut replies = nodes.request(0..nodes.len(), scripts::LIST.call(&keys(&name)));
        let mut holds: BTreeMap<String, Vec<Hold>> = BTreeMap::new();
        while let Some((_, reply)) = replies.next().await {
            for hold in reply.ok().map(read).unwrap_or_default() {
                holds.entry(id_of(&hold.value).to_owned()).or_default().push(hold);
            }
        }
        let mut claims: Vec<ClaimView> = holds
            .into_iter()
            .filter(|(_, seen)| seen.len() >= quorum(nodes.len()))
            .filter_map(|(id, seen)| claim_view(id, &seen, nodes.len()))
            .collect();
        claims.sort_by_key(|claim| claim.token);
        if !claims.is_empty() {
            locks.push(LockView::new(name, claims));
        }
        if locks.len() >= at_most {
            break;
        }
    }
    Ok(locks)
}

/// The names that any node has.
async fn names(nodes: &Nodes, prefix: &str) -> Result<BTreeSet<String>> {
    let pattern = PlainKeys::pattern(prefix);
    let found = join_all(nodes.connections().map(|connection| {
        let pattern = &pattern;
        async move {
            let mut names = connection.scan(pattern, "string").await?;
            names.extend(connection.scan(pattern, "zset").await?);
            Ok::<Vec<String>, RedisError>(names)
        }
    }));
    let found = found.await;
    let (good, bad): (Vec<_>, Vec<_>) = found.into_iter().partition(|names| names.is_ok());
    if good.len() < quorum(nodes.len()) {
        return Err(match bad.into_iter().find_map(RedisResult::err) {
            Some(cause) => error(ENGINE, "list locks", cause),
            None => Error::temporary(ENGINE, "list locks", "no majority of the servers replies"),
        });
    }
    let names = good.into_iter().flatten().flatten();
    Ok(names.filter(|name| name.starts_with(prefix) && !PlainKeys::is_beside(name)).collect())
}

/// Reads `{number, owner, {value, ms left, 1 if shared, ms since it was taken}…}`.
fn read(reply: Value) -> Vec<Hold> {
    let Value::Array(words) = reply else { return Vec::new() };
    let number = words.first().and_then(integer).and_then(|number| u64::try_from(number).ok());
    let owner = words.get(1).and_then(text);
    let holds = words.iter().skip(2).filter_map(|hold| {
        let Value::Array(hold) = hold else { return None };
        let value = hold.first().and_then(foreign_text)?;
        let is_owner = owner.as_deref() == Some(id_of(&value));
        Some(Hold {
            left: milliseconds(hold.get(1)),
            age: milliseconds(hold.get(3)),
            shared: hold.get(2).and_then(integer) == Some(1),
            number: number.filter(|_| is_owner),
            value,
        })
    });
    holds.collect()
}

/// Below zero if it is not known.
fn milliseconds(number: Option<&Value>) -> Option<Duration> {
    number.and_then(integer).and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis)
}

/// The last number given and to whom, and the value with which this claim is inside; `None` if it is not.
pub(crate) fn hold_of(reply: Value, id: ClaimId) -> Option<(Option<(u64, String)>, String)> {
    let fence = reply.as_sequence().and_then(|words| {
        let number = u64::try_from(integer(words.first()?)?).ok()?;
        Some((number, text(words.get(1)?)?))
    });
    let id = id.to_string();
    let hold = read(reply).into_iter().find(|hold| id_of(&hold.value) == id)?;
    Some((fence, hold.value))
}

/// Ours read `<id>-<attempt> <holder> <since>`; of another client's the whole value is its name.
fn id_of(value: &str) -> &str {
    value.split_once(' ').and_then(|(word, _)| word.split_once('-')).map_or(value, |(id, _)| id)
}

/// The largest number that a majority has given at least: a minority may have been ahead. `None` if most have given one to another
/// claim since.
fn token(seen: &[Hold], nodes: usize) -> Option<Token> {
    let mut numbers: Vec<u64> = seen.iter().filter_map(|hold| hold.number).collect();
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    numbers.get(quorum(nodes) - 1).copied().map(Token)
}

fn claim_view(id: String, seen: &[Hold], nodes: usize) -> Option<ClaimView> {
    let first = seen.first()?;
    let foreign = id == first.value;
    let holder = first.value.split_once(' ').map_or(first.value.as_str(), |(_, holder)| holder);
    let holder = holder.rsplit_once(' ').filter(|_| first.age.is_some()).map_or(holder, |(holder, _)| holder);
    let demand = if first.shared { Demand::Shared } else { Demand::Exclusive };
    let view = ClaimView::new(id, Standing::Holds, demand, Holder::decode(holder))
        .token(token(seen, nodes))
        // The earliest: a node may have been taken again since.
        .age(seen.iter().filter_map(|hold| hold.age).max())
        .ttl_left(seen.iter().filter_map(|hold| hold.left).min())
        .foreign(foreign);
    Some(view)
}
