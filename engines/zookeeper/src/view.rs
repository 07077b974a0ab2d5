//! What `list` shows: a walk over the tree of locks, and the data of a claim's node.

use crate::client::token_of;
use crate::error::{RequestError, code};
use crate::keys;
use crate::protocol::{self, Request, Stat};
use crate::session::Session;
use lockkeeper_core::engine::Claim;
use lockkeeper_core::{ClaimView, Demand, Holder, Standing};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many requests are under way at once.
const AT_ONCE: usize = 256;

/// A lock in use.
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) directory: String,
    /// The names of its claims' nodes.
    pub(crate) claims: Vec<String>,
}

/// Finds the locks below the prefix that have children of this style.
pub(crate) async fn find(
    session: &Session,
    chroot: &str,
    prefix: &str,
    is_wanted: fn(&str) -> bool,
    limit: Duration,
) -> Result<Vec<Found>, RequestError> {
    // `a/b` begins the names `a/b`, `a/bc` and `a/b/c`: all below `a`.
    let start = prefix.rsplit_once('/').map_or("", |(start, _)| start);
    // Our server may lag behind the leader, and would not show a lock that was just taken by way of another one.
    let mut requests = session.requests();
    requests.add_without_reply(Request::sync("/"));
    requests.send();
    let mut found = Vec::new();
    let mut level = vec![(start.to_owned(), keys::directory(chroot, start))];
    while !level.is_empty() {
        let mut below = Vec::new();
        for places in level.chunks(AT_ONCE) {
            let all_children = children_of(session, places, limit).await?;
            for ((name, directory), children) in places.iter().zip(all_children) {
                let (claims, parts): (Vec<_>, Vec<_>) =
                    children.into_iter().partition(|child| keys::is_claim(child));
                let places = parts.iter().map(|part| place_below(name, directory, part));
                below.extend(places.filter(|(name, _)| leads_to(name, prefix)));
                let claims: Vec<_> = claims.into_iter().filter(|child| is_wanted(child)).collect();
                if !claims.is_empty() && !name.is_empty() && name.starts_with(prefix) {
                    found.push(Found { name: name.clone(), directory: directory.clone(), claims });
                }
            }
        }
        level = below;
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// A name and its directory.
type Located = (String, String);

fn place_below(name: &str, directory: &str, node: &str) -> Located {
    let part = keys::part_of_name(node);
    let name = if name.is_empty() { part.to_owned() } else { format!("{name}/{part}") };
    (name, format!("{directory}/{node}"))
}

/// Whether names that begin with the prefix can be there or below; the server's own tree is none of ours.
fn leads_to(name: &str, prefix: &str) -> bool {
    let on_the_way = || prefix.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
    name != "zookeeper" && (name.starts_with(prefix) || on_the_way())
}

async fn children_of(
    session: &Session,
    places: &[Located],
    limit: Duration,
) -> Result<Vec<Vec<String>>, RequestError> {
    let mut requests = session.requests();
    let replies: Vec<_> = places
        .iter()
        .map(|(_, directory)| requests.children(if directory.is_empty() { "/" } else { directory }))
        .collect();
    requests.send();
    let mut all = Vec::with_capacity(replies.len());
    for reply in replies {
        all.push(match reply.within(limit).await {
            // Gone since its parent was listed, or closed to us.
            Err(RequestError::Refused(code::NO_NODE | code::NO_AUTH)) => Vec::new(),
            children => children?,
        });
    }
    Ok(all)
}

/// The data of nodes; those that have gone are left out.
pub(crate) async fn read_all(
    session: &Session,
    directory: &str,
    names: &[String],
    limit: Duration,
) -> Result<Vec<(String, Vec<u8>, Stat)>, RequestError> {
    let mut all = Vec::with_capacity(names.len());
    for names in names.chunks(AT_ONCE) {
        let mut requests = session.requests();
        let replies: Vec<_> = names
            .iter()
            .map(|name| {
                requests.add(Request::data(&format!("{directory}/{name}"), false), protocol::read_data)
            })
            .collect();
        requests.send();
        for (name, reply) in names.iter().zip(replies) {
            match reply.within(limit).await {
                Ok((data, stat)) => all.push((name.clone(), data, stat)),
                Err(RequestError::Refused(code::NO_NODE)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(all)
}

/// The data of a claim's node. Other clients write text of their own, mostly an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    #[serde(flatten)]
    pub(crate) holder: Holder,
    pub(crate) claim: String,
    pub(crate) keeper: String,
    pub(crate) demand: String,
    /// The fencing token, where it is not the node's own transaction: after a downgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<i64>,
    /// For how long it had held when this was written, where it had to wait: the node's time of change says when that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_ms: Option<u64>,
}

impl Content {
    pub(crate) fn of(
        claim: &Claim,
        demand: Demand,
        token: Option<i64>,
        held_for: Option<Duration>,
    ) -> Vec<u8> {
        let content = Self {
            holder: claim.holder.as_ref().clone(),
            claim: claim.id.to_string(),
            keeper: claim.keeper.to_string(),
            demand: demand.to_string(),
            token,
            held_ms: held_for.map(|held| held.as_millis().try_into().unwrap_or(u64::MAX)),
        };
        serde_json::to_vec(&content).unwrap_or_default()
    }

    /// Reads the data of a node; `None` if another client wrote it.
    pub(crate) fn read(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}

/// The text in another client's data, as far as it is one.
fn foreign_holder(data: &[u8]) -> Holder {
    const LONGEST_CHARS: usize = 120;
    let text = String::from_utf8_lossy(data);
    let text = text.chars().filter(|c| !c.is_control()).take(LONGEST_CHARS).collect();
    Holder { text, host: String::new(), pid: 0 }
}

/// A claim's node as operators see it. Its demand is what its name says.
pub(crate) fn claim(name: &str, demand: Demand, data: &[u8], stat: &Stat) -> ClaimView {
    let ours = Content::read(data);
    let id = keys::NodeName::parse(name).and_then(|node| node.id).map(|id| id.to_string());
    let token = ours.as_ref().and_then(|content| content.token).unwrap_or(stat.czxid);
    let held_ms = ours.as_ref().and_then(|content| content.held_ms);
    let is_foreign = ours.is_none();
    let id = ours.as_ref().map(|content| content.claim.clone()).or(id).unwrap_or_else(|| name.to_owned());
    let holder = ours.map_or_else(|| foreign_holder(data), |content| content.holder);
    // Only the leader knows when a session expires.
    ClaimView::new(id, Standing::Waits, demand, holder)
        .token(Some(token_of(token)))
        .age(age(stat.ctime_ms))
        .held_for(held_ms.and_then(|held| Some(age(stat.mtime_ms)? + Duration::from_millis(held))))
        .foreign(is_foreign)
}

/// Only shown to operators: the server's wall clock against ours.
fn age(ctime_ms: i64) -> Option<Duration> {
    let created = Duration::from_millis(u64::try_from(ctime_ms).ok()?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(now.saturating_sub(created))
}
