//! A walk over the tree of locks, for those who look.

use crate::failure::{Failure, code};
use crate::keys::{NodeName, PLAIN_NODE};
use crate::protocol::{self, Request, Stat};
use crate::session::Session;
use std::time::Duration;

/// How many requests are under way at once.
const AT_ONCE: usize = 256;

/// A lock's directory, without the chroot, and the names of its claims.
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) claims: Vec<String>,
}

/// Finds the directories below the prefix that have children which are claims.
pub(crate) async fn find(
    session: &Session,
    chroot: &str,
    prefix: &str,
    is_claim: fn(&str) -> bool,
    limit: Duration,
) -> Result<Vec<Found>, Failure> {
    // `a/b` begins the names `a/b`, `a/bc` and `a/b/c`: all below `a`.
    let start = prefix.rsplit_once('/').map_or("", |(start, _)| start);
    let mut found = Vec::new();
    let mut level = vec![start.to_owned()];
    while !level.is_empty() {
        let mut below = Vec::new();
        for names in level.chunks(AT_ONCE) {
            for (name, children) in names.iter().zip(children_of(session, chroot, names, limit).await?) {
                let (claims, others): (Vec<_>, Vec<_>) =
                    children.into_iter().partition(|child| is_claim(child));
                if !claims.is_empty() && name.starts_with(prefix) && !name.is_empty() {
                    found.push(Found { name: name.clone(), claims });
                }
                let others = others.into_iter().filter(|child| may_have_locks(name, child));
                let paths = others.map(|child| if name.is_empty() { child } else { format!("{name}/{child}") });
                below.extend(paths.filter(|path| leads_to(path, prefix)));
            }
        }
        level = below;
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Neither another style's claim nor the server's own tree.
fn may_have_locks(parent: &str, child: &str) -> bool {
    NodeName::parse(child).is_none() && child != PLAIN_NODE && !(parent.is_empty() && child == "zookeeper")
}

fn leads_to(path: &str, prefix: &str) -> bool {
    path.starts_with(prefix) || prefix.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
}

async fn children_of(
    session: &Session,
    chroot: &str,
    names: &[String],
    limit: Duration,
) -> Result<Vec<Vec<String>>, Failure> {
    let mut batch = session.batch();
    let answers: Vec<_> = names
        .iter()
        .map(|name| {
            let path = if name.is_empty() { chroot.to_owned() } else { format!("{chroot}/{name}") };
            batch.children(if path.is_empty() { "/" } else { &path })
        })
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
