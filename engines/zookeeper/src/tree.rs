//! A walk over the tree of locks, for those who look.

use crate::failure::{Failure, code};
use crate::keys;
use crate::protocol::{self, Request, Stat};
use crate::session::Session;
use std::time::Duration;

/// How many requests are under way at once.
const AT_ONCE: usize = 256;

/// A lock in use.
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) directory: String,
    /// The names of its claims' nodes.
    pub(crate) claims: Vec<String>,
}

/// Finds the locks below the prefix that have children which are claims of the style asked for.
pub(crate) async fn find(
    session: &Session,
    chroot: &str,
    prefix: &str,
    is_wanted: fn(&str) -> bool,
    limit: Duration,
) -> Result<Vec<Found>, Failure> {
    // `a/b` begins the names `a/b`, `a/bc` and `a/b/c`: all below `a`.
    let start = prefix.rsplit_once('/').map_or("", |(start, _)| start);
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
) -> Result<Vec<Vec<String>>, Failure> {
    let mut batch = session.batch();
    let answers: Vec<_> = places
        .iter()
        .map(|(_, directory)| batch.children(if directory.is_empty() { "/" } else { directory }))
        .collect();
    batch.send();
    let mut all = Vec::with_capacity(answers.len());
    for answer in answers {
        all.push(match answer.within(limit).await {
            // Gone since its parent was listed, or closed to us.
            Err(Failure::Refused(code::NO_NODE | code::NO_AUTH)) => Vec::new(),
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
) -> Result<Vec<(String, Vec<u8>, Stat)>, Failure> {
    let mut all = Vec::with_capacity(names.len());
    for names in names.chunks(AT_ONCE) {
        let mut batch = session.batch();
        let answers: Vec<_> = names
            .iter()
            .map(|name| batch.add(Request::data(&format!("{directory}/{name}"), false), protocol::read_data))
            .collect();
        batch.send();
        for (name, answer) in names.iter().zip(answers) {
            match answer.within(limit).await {
                Ok((data, stat)) => all.push((name.clone(), data, stat)),
                Err(Failure::Refused(code::NO_NODE)) => {}
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(all)
}
