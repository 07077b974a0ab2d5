//! One meaning per word in the whole tree, and the words that every engineer searches for.

use super::{files_below, no_complaints};

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
    ("insist", "retry"),
    ("surely", "without timeout"),
    ("at last", "when"),
    ("nonsense", "an error"),
    ("manner", "mode"),
    ("leave it away", "leave it out"),
    ("who looks", "the operator"),
    ("had alone", "is exclusive"),
    ("has alone", "is exclusive"),
    ("handed out", "given"),
    ("hand out", "give"),
    ("hands out", "gives"),
    ("trouble", "an error"),
    ("of this user's", "the user's"),
    ("for people who look", "shown to operators"),
];

/// Words for a message, in what users and authors of engines read. 'Tell apart' is another word.
const MESSAGES: &[(&str, &str)] =
    &[("told", "notified"), ("tell", "notify"), ("heard", "received"), ("hear", "receive")];
/// Where they count. What tests and the pages of measurements say of a holder is a story.
const READ_BY_USERS: &[&str] =
    &["crates/core/src/", "crates/lockkeeper/src/", "engines/", "README.md", "ARCHITECTURE.md", "DESIGN.md"];

/// Names that databases store, and that stay as they are.
const STORED: &[(&str, &str)] = &[("engines/mysql/", "bell")];

const ENDINGS: &[&str] = &["rs", "md", "lua", "sql", "proto"];
/// The list itself.
const THIS: &str = "crates/conformance/tests/tidy/words.rs";

#[test]
fn every_word_has_one_meaning() {
    let mut found = Vec::new();
    for (path, text) in
        files_below("").filter(|(path, _)| ENDINGS.iter().any(|ending| path.ends_with(&format!(".{ending}"))))
    {
        if path == THIS {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            let is_stored =
                |word: &str| STORED.iter().any(|(below, name)| path.starts_with(below) && word == *name);
            let is_read = READ_BY_USERS.iter().any(|place| path.starts_with(place));
            let messages =
                MESSAGES.iter().filter(|_| is_read && !path.contains("/tests") && !line.contains("apart"));
            for (word, instead) in
                WORDS.iter().chain(messages).filter(|(word, _)| has_word(&line, word) && !is_stored(word))
            {
                found.push(format!("{path}:{}: '{word}': write '{instead}'", number + 1));
            }
        }
    }
    no_complaints(found);
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
