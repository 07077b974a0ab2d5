//! Whatever async code can do, plain threads can do: the methods of both are compared, from the sources.

use std::collections::{BTreeMap, BTreeSet};

const ASYNC: &[&str] = &[
    include_str!("../../core/src/keeper.rs"),
    include_str!("../../core/src/acquire.rs"),
    include_str!("../../core/src/attach.rs"),
    include_str!("../../core/src/mutex.rs"),
    include_str!("../../core/src/rwlock.rs"),
    include_str!("../../core/src/semaphore.rs"),
    include_str!("../../core/src/multi.rs"),
    include_str!("../../core/src/election.rs"),
    include_str!("../../core/src/condition.rs"),
    include_str!("../../core/src/guard.rs"),
];

const BLOCKING: &[&str] = &[
    include_str!("../src/blocking.rs"),
    include_str!("../src/blocking/locks.rs"),
    include_str!("../src/blocking/election.rs"),
    include_str!("../src/blocking/condition.rs"),
    include_str!("../src/blocking/guard.rs"),
    include_str!("../src/connect.rs"),
];

/// What plain threads do in another way.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("Keeper", "builder", "`Connect` has the settings"),
    ("Keeper", "owner", "the thread is the owner"),
    ("Guard", "protect", "there is no future to cancel: `lost_within` and `state` say when to stop"),
    ("Builder", "build", "`Connect::connect` and `blocking::Keeper::connect_with`"),
];

/// Types whose twin has another name, and those that both share.
fn twin(of: &str) -> Option<&str> {
    match of {
        "Builder" => Some("Connect"),
        "Wanted" => None,
        same => Some(same),
    }
}

type Methods = BTreeMap<String, BTreeSet<String>>;

/// The public methods of each type.
fn methods(sources: &[&str]) -> Methods {
    let mut found = Methods::new();
    for source in sources {
        let mut of = None;
        for line in source.lines() {
            if let Some(block) = line.strip_prefix("impl ").filter(|block| !block.contains(" for ")) {
                of = block.strip_suffix(" {");
            } else if line == "}" {
                of = None;
            }
            let Some(of) = of else { continue };
            found.entry(of.to_owned()).or_default().extend(names(line));
        }
    }
    found
}

/// The methods that a line declares, itself or through the macro that makes four of one.
fn names(line: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    if let Some(list) = line.strip_prefix("    ways_to_ask!(") {
        return list.split(", ").take(4).map(word).collect();
    }
    let method = line.strip_prefix("    pub fn ").or_else(|| line.strip_prefix("    pub async fn "));
    method.map(word).into_iter().collect()
}

#[test]
fn every_async_method_has_a_blocking_twin() {
    let (here, there) = (methods(ASYNC), methods(BLOCKING));
    assert!(here["Mutex"].contains("lock_within") && there["Mutex"].contains("lock_within"), "read wrongly");
    let mut missing = Vec::new();
    for (of, names) in &here {
        let Some(twin) = twin(of) else { continue };
        let there = there.get(twin).cloned().unwrap_or_default();
        for name in names.difference(&there) {
            if !ELSEWHERE.iter().any(|(kind, method, _)| kind == of && method == name) {
                missing.push(format!("{of}::{name}"));
            }
        }
    }
    assert!(missing.is_empty(), "blocking has no {missing:?}");
    for (of, name, _) in ELSEWHERE {
        assert!(here[*of].contains(*name), "{of}::{name} is gone from async: strike it from the list");
    }
}
