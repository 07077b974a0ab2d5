//! The page about the command line is true: every flag and every exit status is there, and nothing else.

mod support;

use std::collections::BTreeSet;
use support::Place;

const VERBS: [&str; 17] = [
    "run",
    "elect",
    "acquire",
    "renew",
    "release",
    "ls",
    "show",
    "watch",
    "evict",
    "engines",
    "bench",
    "torture",
    "serve",
    "mcp",
    "schema",
    "completions",
    "man",
];

fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    std::fs::read_to_string(path).unwrap()
}

/// The long flags in a text: `--word` where it does not continue a word.
fn flags(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("--") {
        let before = text[..at].chars().next_back().unwrap_or(' ');
        let word: String =
            text[at + 2..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
        if !before.is_alphanumeric() && before != '-' && word.starts_with(|c: char| c.is_ascii_lowercase()) {
            found.insert(format!("--{}", word.trim_end_matches('-')));
        }
    }
    found
}

#[test]
fn every_flag_of_the_help_is_on_the_page_and_every_flag_on_the_page_in_the_help() {
    let place = Place::new();
    let mut help = place.output(["--help"]).stdout;
    for verb in VERBS {
        help.extend(place.output([verb, "--help"]).stdout);
    }
    assert_eq!(flags(&page()), flags(&String::from_utf8(help).unwrap()));
}

#[test]
fn every_exit_status_of_the_help_is_on_the_page() {
    let help = String::from_utf8(Place::new().output(["help", "run"]).stdout).unwrap();
    let statuses: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Exit status"))
        .filter_map(|line| line.split_whitespace().next().filter(|word| word.parse::<u8>().is_ok()))
        .collect();
    assert_eq!(statuses, ["1", "64", "69", "75", "76", "124", "126", "127"]);
    for status in statuses {
        assert!(page().contains(&format!("| {status} |")), "{status}");
    }
}

#[test]
fn every_verb_has_its_words() {
    for verb in VERBS {
        assert!(page().contains(&format!("lockkeeper {verb}")), "{verb}");
    }
}
