//! What ARCHITECTURE and DESIGN say can be counted: the hops of one lock, and the size of the core.

use super::{files_below, no_complaints, root};

/// The most functions on the way from `lock()` to a driver.
const MOST_HOPS: usize = 20;
/// The most lines of code in the core, without tests, comments and blank lines.
const CORE_LINES: usize = 5200;
const HOPS: &str = "## The hops of one `lock()`";

/// The hops in a row of the table, as `file:function`.
fn hops(row: &str) -> Vec<&str> {
    row.split('`').skip(1).step_by(2).filter(|code| code.contains(".rs:")).collect()
}

/// `queue.rs` of the core or of an engine.
fn source(hop_file: &str) -> String {
    let (crate_, file) = hop_file.split_once('/').expect("a crate and a file");
    if crate_ == "core" { format!("crates/core/src/{file}") } else { format!("engines/{crate_}/src/{file}") }
}

#[test]
fn the_hops_of_one_lock_are_there_and_few() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let section = page.split(HOPS).nth(1).expect("the section").split("\n## ").next().expect("its text");
    let rows: Vec<&str> = section.lines().filter(|line| !hops(line).is_empty()).collect();
    let (common, engines) = rows.split_first().expect("a row for all engines");
    assert_eq!(engines.len(), 5);
    let mut complaints = Vec::new();
    for row in &rows {
        for (file, function) in hops(row).into_iter().filter_map(|hop| hop.split_once(':')) {
            let path = source(file);
            let text = std::fs::read_to_string(root().join(&path)).unwrap_or_default();
            let has = ["(", "<"].iter().any(|end| text.contains(&format!("fn {function}{end}")));
            if !has {
                complaints.push(format!("ARCHITECTURE.md: {path} has no function {function}"));
            }
        }
    }
    for row in engines {
        let count = hops(common).len() + hops(row).len();
        if count > MOST_HOPS || !row.ends_with(&format!("| {count} |")) {
            complaints.push(format!("ARCHITECTURE.md: {count} hops: {row}"));
        }
    }
    no_complaints(complaints);
}

/// Lines of code: no comment, no blank line, nothing from a module of tests on.
fn code_lines(text: &str) -> usize {
    let ends = ["\n#[cfg(test)]\nmod ", "\n#[cfg(all(test, not(shuttle)))]\nmod "];
    let code = ends.iter().fold(text, |code, end| code.split(end).next().expect("one part"));
    code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn the_core_is_small() {
    let of_tests = ["/tests.rs", "fuzzing", "interleavings"];
    let is_code = |path: &str| path.ends_with(".rs") && !of_tests.iter().any(|name| path.contains(name));
    let sources = files_below("crates/core/src/").filter(|(path, _)| is_code(path));
    let lines: usize = sources.map(|(_, text)| code_lines(&text)).sum();
    assert!((CORE_LINES / 2..=CORE_LINES).contains(&lines), "{lines} lines of code in the core");
}

/// Matched to the end by their users; DESIGN says why.
const EXHAUSTIVE: &[&str] = &["State", "Demand", "Shape", "Try"];

/// Structs that users (`Holder`) or authors of engines build by their fields.
const BUILT: &[&str] = &["Holder", "Claim", "Grant", "Host", "Joined"];

/// The public types of the libraries that begin so (`pub enum `), with their path, name, and all that follows; and whether they are
/// non-exhaustive.
fn public_types(start: &str) -> Vec<(String, String, String, bool)> {
    let mut found = Vec::new();
    for folder in ["crates/core/src/", "crates/lockkeeper/src/", "crates/fencing/src/"] {
        for (path, text) in files_below(folder).filter(|(path, _)| path.ends_with(".rs")) {
            for (at, _) in text.match_indices(&format!("\n{start}")) {
                let rest = &text[at + 1 + start.len()..];
                let name = rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
                let attributes = text[..at].lines().rev().take_while(|line| line.starts_with("#["));
                let can_grow = attributes.clone().any(|line| line == "#[non_exhaustive]");
                found.push((path.clone(), name.to_owned(), rest.to_owned(), can_grow));
            }
        }
    }
    assert!(!found.is_empty(), "{start}");
    found
}

#[test]
fn public_enums_can_grow_but_for_those_that_design_names() {
    let wrong = public_types("pub enum ")
        .into_iter()
        .filter(|(_, name, _, can_grow)| *can_grow == EXHAUSTIVE.contains(&name.as_str()));
    no_complaints(
        wrong
            .map(|(path, name, ..)| format!("{path}: {name}: non_exhaustive, or named in DESIGN and here"))
            .collect(),
    );
}

/// Whether code elsewhere could build it by its fields: all are public.
fn is_open(definition: &str) -> bool {
    let Some((head, rest)) = definition.split_once('{').filter(|(head, _)| !head.contains([';', '('])) else {
        return false;
    };
    let body = rest.split("\n}").next().unwrap_or_default();
    let mut fields =
        body.lines().filter(|line| line.contains(": ") && !line.trim().starts_with(['/', '#'])).peekable();
    !head.contains('\n') && fields.peek().is_some() && fields.all(|line| line.starts_with("    pub "))
}

#[test]
fn public_structs_can_grow_but_for_those_that_others_build() {
    let wrong = public_types("pub struct ")
        .into_iter()
        .filter(|(_, name, rest, can_grow)| is_open(rest) && *can_grow == BUILT.contains(&name.as_str()));
    no_complaints(
        wrong
            .map(|(path, name, ..)| {
                format!("{path}: {name}: non_exhaustive, or in the list of those that are built")
            })
            .collect(),
    );
}
