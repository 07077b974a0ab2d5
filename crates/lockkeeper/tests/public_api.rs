//! Pins what users import: a name that appears or goes is a change of the public API, and belongs in the changelog.

const NAMES: &[&str] = &[
    "Abilities",
    "ClaimView",
    "Condition",
    "Connect",
    "CrashFrees",
    "DEFAULT_TTL",
    "Demand",
    "Election",
    "EngineInfo",
    "Error",
    "Guard",
    "Handle",
    "Holder",
    "Keeper",
    "Leaders",
    "LockView",
    "LostReason",
    "MIN_TTL",
    "MultiLock",
    "Mutex",
    "Owner",
    "Result",
    "RwLock",
    "Semaphore",
    "Shape",
    "Standing",
    "State",
    "Token",
    "Waits",
    "Wanted",
    "blocking",
    "connect",
    "deadlocks",
    "default_url",
    "engines",
    "register",
];

#[test]
fn the_front_page_shows_these_names_and_no_others() {
    let source = include_str!("../src/lib.rs");
    let is_code = |line: &&str| !line.trim_start().starts_with("//") && !line.starts_with("#!");
    let code: String = source.lines().filter(is_code).collect();
    let mut names = Vec::new();
    for statement in code.split(';').map(str::trim) {
        if let Some(module) = statement.strip_prefix("pub mod ") {
            names.push(module.to_owned());
        } else if let Some(used) = statement.strip_prefix("pub use ") {
            assert!(!used.contains('*'), "a glob shows all that core has");
            let list = used.split_once("::").expect("a path").1.trim_matches(['{', '}']);
            names.extend(list.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()));
        }
    }
    names.sort_unstable();
    assert_eq!(names, NAMES);
}
