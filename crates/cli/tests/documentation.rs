//! The page about the command line is true: every flag and every exit status is there, and nothing else.

mod support;

use std::collections::BTreeSet;
use std::process::Stdio;
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

/// A URL of each kind for every engine, and its page.
const URLS: [(&str, &str); 14] = [
    ("file:/nowhere", "engines/file"),
    ("sqlite:/nowhere", "engines/sqlite"),
    ("postgres://h/d", "engines/postgres"),
    ("mysql://h/d", "engines/mysql"),
    ("redis://h", "engines/redis"),
    ("rediss://h", "engines/redis"),
    ("redis+unix:///s", "engines/redis"),
    ("redis+sentinel://h/m", "engines/redis"),
    ("redis+cluster://h", "engines/redis"),
    ("redlock://a,b,c", "engines/redlock"),
    ("zookeeper://h", "engines/zookeeper"),
    ("etcd://h", "engines/etcd"),
    ("etcds://h", "engines/etcd"),
    ("memory:", "docs/book"),
];

/// The words of a page. One that ends with a star stands for all that begin like it.
fn is_on(page: &str, parameter: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-*".contains(c);
    page.split(|c| !is_part(c)).any(|word| match word.strip_suffix('*') {
        Some(start) => start.len() > 2 && parameter.starts_with(start),
        None => word == parameter,
    })
}

#[test]
fn every_parameter_of_a_url_is_on_its_engines_page() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let read = |path: &str| std::fs::read_to_string(format!("{root}/{path}")).unwrap();
    let general = read("docs/book/operations.md");
    let place = Place::new();
    let mut missing = Vec::new();
    for (url, page) in URLS {
        let (status, text) = place.status(["-e", &format!("{url}?nosuch=1"), "ls"]);
        let known = text.trim().rsplit_once("it has: ").map(|(_, known)| known.split(", "));
        let known: Vec<&str> = known.unwrap_or_else(|| panic!("{url}: {status} {text}")).collect();
        assert!(known.contains(&"namespace") && known.contains(&"ttl"), "{url}: {text}");
        let text = if page == "docs/book" { String::new() } else { read(&format!("{page}/README.md")) };
        let unknown =
            known.iter().filter(|parameter| !is_on(&text, parameter) && !is_on(&general, parameter));
        missing.extend(unknown.map(|parameter| format!("{page}: {parameter}")));
    }
    assert!(missing.is_empty(), "{missing:#?}");
    let schemes = lockkeeper::engines().into_iter().flat_map(|engine| engine.schemes.iter());
    let aliases = ["postgresql", "mariadb", "unix"];
    let left_out: Vec<_> = schemes
        .filter(|scheme| {
            !aliases.contains(scheme) && !URLS.iter().any(|(url, _)| url.starts_with(&format!("{scheme}:")))
        })
        .collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}

/// Pages with commands that need what a test does not have: a database, a crontab, another machine, a quarter of an hour.
const PAGES: [&str; 7] = [
    "README.md",
    "docs/cli.md",
    "docs/serve.md",
    "crates/bench/README.md",
    "docs/proof.md",
    "crates/faults/README.md",
    // Calls the project's scripts only.
    "crates/conformance/README.md",
];

/// The calls of lockkeeper in the blocks `sh` of a page, each for a shell, without what is before it and its files.
fn calls(page: &str) -> Vec<String> {
    let mut calls = Vec::new();
    let mut is_shell = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_shell = line == "```sh";
        } else if let Some(at) = line.find("lockkeeper ").filter(|_| is_shell) {
            let call = line[at..].split(['<', '#']).next().expect("one part");
            // A bench that measures nothing.
            let end = if call.starts_with("lockkeeper bench") { " --workloads nosuch" } else { "" };
            calls.push(format!("{}{end}", call.trim_end().replace("--engine URL", "--engine nosuch://host")));
        }
    }
    calls
}

/// What nobody knows, an engine or a workload, is named only when everything else in the call is understood.
#[test]
fn every_call_on_the_pages_is_understood() {
    let place = Place::new();
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_lockkeeper")).parent().unwrap();
    let paths = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    let mut count = 0;
    for page in PAGES {
        let text = std::fs::read_to_string(format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        for call in calls(&text) {
            let mut shell = std::process::Command::new("timeout");
            shell.args(["20", "bash", "-c", &call]).current_dir(place.dir.path()).stdin(Stdio::null());
            let output = shell.env("PATH", &paths).env("LOCKKEEPER_URL", "nosuch://host").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            // The command under the lock is looked for before the engine.
            let is_understood = ["nosuch", "command not found"].iter().any(|word| text.contains(word));
            assert!(output.status.success() || is_understood, "{page}: {call}\n{text}");
            count += 1;
        }
    }
    assert!(count >= 10, "{count} calls were found");
}

#[test]
fn every_verb_has_its_words() {
    for verb in VERBS {
        assert!(page().contains(&format!("lockkeeper {verb}")), "{verb}");
    }
}
