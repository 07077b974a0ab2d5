//! Pins what users import: a name that appears or goes is a change of the public API, and belongs in the changelog.

const NAMES: &[&str] = &[
    "Condition",
    "Connect",
    "DEFAULT_TTL",
    "Election",
    "Error",
    "Guard",
    "Handle",
    "Holder",
    "Keeper",
    "Leaders",
    "LostReason",
    "MIN_TTL",
    "MultiLock",
    "Mutex",
    "Owner",
    "Result",
    "RwLock",
    "Semaphore",
    "State",
    "Token",
    "Wanted",
    "blocking",
    "connect",
    "default_url",
    "engines",
    "register",
    "views",
];

/// What can be seen of locks and engines, in the module `views`.
const VIEWS: &[&str] = &[
    "Abilities",
    "ClaimView",
    "CrashFrees",
    "Demand",
    "EngineInfo",
    "LockView",
    "Shape",
    "Standing",
    "Waits",
    "deadlocks",
];

/// The names that code exports: its modules, and what it takes over by name.
fn exported(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for statement in code.split(';').map(str::trim) {
        if let Some(module) = statement.strip_prefix("pub mod ") {
            names.push(module.to_owned());
        } else if let Some(used) = statement.strip_prefix("pub use ") {
            assert!(!used.contains('*'), "a glob shows all that core has");
            let used = used.trim_start_matches("crate::");
            let list = used.split_once("::").expect("a path").1.trim_matches(['{', '}']);
            names.extend(list.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()));
        }
    }
    names.sort_unstable();
    names
}

#[test]
fn the_front_page_shows_these_names_and_no_others() {
    let source = include_str!("../src/lib.rs");
    let is_code = |line: &&str| !line.trim_start().starts_with("//") && !line.starts_with("#!");
    let code: String = source.lines().filter(is_code).collect();
    let (before, rest) = code.split_once("pub mod views {").expect("the module");
    let (views, after) = rest.split_once(";}").expect("its end");
    assert_eq!(exported(&format!("{before}pub mod views;{after}")), NAMES);
    assert_eq!(exported(views), VIEWS);
}
