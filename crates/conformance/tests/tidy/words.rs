//! One meaning per word in the whole tree, and the words that every engineer searches for.

use super::{files_below, no_complaints};
use std::collections::BTreeMap;

/// Words that mean something in this project only, and what to write instead. A plural counts as the word.
const WORDS: &[(&str, &str)] = &[
    ("house", "background"),
    ("visitor", "the caller's runtime"),
    ("at home", "background"),
    ("lane", "connection"),
    ("desk", "connection"),
    ("seat", "connection"),
    ("greeting", "handshake"),
    ("hand in", "send"),
    ("handed in", "sent"),
    ("hands in", "sends"),
    ("bell", "wake"),
    ("ears", "subscription"),
    ("crowd", "contended"),
    ("crowded", "contended"),
    ("short way", "fast path"),
    ("long way", "slow path"),
    ("scribe", "holder log"),
    ("minder", "reconnect task"),
    ("looker", "poller"),
    ("lookout", "poller"),
    ("so many", "a count"),
    ("so long", "a duration"),
    ("whoever", "the caller"),
    ("himself", "itself"),
    ("had alone", "is exclusive"),
    ("of this user's", "the user's"),
    ("for people who look", "shown to operators"),
];

/// What has still to be renamed, counted by crate or page. It may only shrink: lower the number with each word that goes.
const LEFT: &[(&str, usize)] = &[
    ("ARCHITECTURE.md", 4),
    ("CHANGELOG.md", 3),
    ("DESIGN.md", 4),
    ("crates/cli", 11),
    ("crates/conformance", 1),
    ("crates/core", 133),
    ("crates/lockkeeper", 7),
    ("docs", 11),
    ("engines/etcd", 74),
    ("engines/file", 42),
    ("engines/mysql", 191),
    ("engines/postgres", 72),
    ("engines/redis", 333),
    ("engines/redlock", 33),
    ("engines/sql-common", 29),
    ("engines/sqlite", 75),
    ("engines/zookeeper", 70),
    ("examples/flash_sale", 2),
];

const ENDINGS: &[&str] = &["rs", "md", "lua", "sql", "proto"];
/// The list itself.
const THIS: &str = "crates/conformance/tests/tidy/words.rs";

#[test]
fn every_word_has_one_meaning() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in
        files_below("").filter(|(path, _)| ENDINGS.iter().any(|ending| path.ends_with(&format!(".{ending}"))))
    {
        if path == THIS {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (word, instead) in WORDS.iter().filter(|(word, _)| has_word(&line, word)) {
                let complaint = format!("{path}:{}: '{word}': write '{instead}'", number + 1);
                found.entry(area(&path)).or_default().push(complaint);
            }
        }
    }
    let mut complaints = Vec::new();
    for (area, found) in &found {
        let allowed = LEFT.iter().find(|(known, _)| known == area).map_or(0, |(_, count)| *count);
        if found.len() > allowed {
            complaints.extend(found.iter().cloned());
            complaints.push(format!("{area}: {} words, of which {allowed} were there before", found.len()));
        }
    }
    for (area, count) in LEFT {
        let now = found.get(*area).map_or(0, Vec::len);
        if now < *count {
            complaints.push(format!("(\"{area}\", {now}), // no longer {count}: lower it in {THIS}"));
        }
    }
    no_complaints(complaints);
}

/// The crate, or the page outside of one.
fn area(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').collect();
    let depth = if matches!(parts[0], "crates" | "engines" | "examples") { 2 } else { 1 };
    parts[..depth.min(parts.len())].join("/")
}

/// Whether the line has the word, or its plural, not as a part of another.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = &line[at + word.len()..];
        // 'So long that' is what it says.
        if after.starts_with(" that") {
            return false;
        }
        let after = after.strip_prefix('s').unwrap_or(after).chars().next();
        [before, after].into_iter().flatten().all(|letter| !letter.is_alphabetic())
    })
}

#[test]
fn words_are_found_whole() {
    assert!(has_word("the house's thread", "house"));
    assert!(has_word("two bells ring", "bell"));
    assert!(has_word("fn a_crowd_waits()", "crowd"));
    assert!(!has_word("a warehouse", "house"));
    assert!(!has_word("years", "ears"));
    assert!(!has_word("so long that it ends", "so long"));
    assert!(!has_word("housing", "house"));
}
