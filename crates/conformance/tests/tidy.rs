//! What every file and every engine must have, checked as a test.

#[path = "tidy/book.rs"]
mod book;
#[path = "tidy/dependencies.rs"]
mod dependencies;
#[path = "tidy/design.rs"]
mod design;
#[path = "tidy/mutants.rs"]
mod mutants;
#[path = "tidy/packages.rs"]
mod packages;
#[path = "tidy/rooms.rs"]
mod rooms;
#[path = "tidy/scripts.rs"]
mod scripts;
#[path = "tidy/words.rs"]
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// Longer files are two files.
const LONGEST_LINES: usize = 500;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

/// Every file of the project below a folder, without build products and version control.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !matches!(name, "target" | ".git" | "node_modules") {
                found.extend(files(&path));
            }
        } else {
            found.push(path);
        }
    }
    found
}

/// The path and text of every text file below a folder of the project, in order.
fn files_below(folder: &str) -> impl Iterator<Item = (String, String)> {
    let root = root();
    let mut paths = files(&root.join(folder));
    paths.sort();
    paths.into_iter().filter_map(move |path| {
        let text = fs::read_to_string(&path).ok()?;
        Some((path.strip_prefix(&root).expect("below the root").display().to_string(), text))
    })
}

fn with_ending(ending: &str) -> Vec<(String, String)> {
    let dotted = format!(".{ending}");
    files_below("").filter(|(path, _)| path.ends_with(&dotted)).collect()
}

/// Code that a tool wrote is not held to our style.
fn is_generated(text: &str) -> bool {
    text.lines().take(3).any(|line| line.contains("@generated"))
}

fn no_complaints(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn every_source_file_says_its_job_first() {
    let silent = |(path, text): (String, String)| {
        (!text.starts_with("//!") && !is_generated(&text))
            .then(|| format!("{path}: begin with one //! sentence"))
    };
    no_complaints(with_ending("rs").into_iter().filter_map(silent).collect());
}

#[test]
fn no_source_file_is_too_long() {
    let long = |(path, text): (String, String)| {
        let lines = text.lines().count();
        (lines > LONGEST_LINES && !is_generated(&text)).then(|| format!("{path}: {lines} lines; split it"))
    };
    no_complaints(with_ending("rs").into_iter().filter_map(long).collect());
}

#[test]
fn no_documentation_example_is_ignored() {
    let mut complaints = Vec::new();
    for (path, text) in with_ending("rs") {
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start_matches(['/', '!', ' ']);
            if line.starts_with("```") && line.contains("ignore") {
                complaints.push(format!("{path}:{}: an example that is not run is soon wrong", number + 1));
            }
        }
    }
    no_complaints(complaints);
}

#[test]
fn nothing_is_left_to_do_in_the_sources() {
    // Put together here, so that this file does not accuse itself.
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X:"], ["todo", "!("], ["unimplemented", "!("]]
        .map(|word| word.concat());
    let mut complaints = Vec::new();
    for ending in ["rs", "lua", "sql", "toml", "proto"] {
        for (path, text) in with_ending(ending) {
            for (number, line) in text.lines().enumerate() {
                if words.iter().any(|word| line.contains(word)) {
                    complaints.push(format!("{path}:{}: {}", number + 1, line.trim()));
                }
            }
        }
    }
    no_complaints(complaints);
}

fn engines() -> Vec<PathBuf> {
    let mut engines: Vec<PathBuf> = fs::read_dir(root().join("engines"))
        .expect("the engines")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    // What engines share stands beside them and is none.
    let is_engine = |path: &PathBuf| {
        fs::read_to_string(path.join("src/lib.rs")).is_ok_and(|text| text.contains("STYLES"))
    };
    engines.retain(is_engine);
    engines.sort();
    engines
}

/// An engine without the suite is not an engine.
#[test]
fn every_engine_runs_the_conformance_suite() {
    let mut complaints = Vec::new();
    for engine in engines() {
        let tests = fs::read_dir(engine.join("tests"))
            .map(|entries| entries.flatten().collect())
            .unwrap_or(Vec::new());
        let suites: Vec<String> = tests
            .iter()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("conformance") && name.ends_with(".rs"))
            .collect();
        if suites.is_empty() {
            complaints.push(format!("{}: tests/conformance.rs is missing", engine.display()));
        }
        let manifest = fs::read_to_string(engine.join("Cargo.toml")).expect("a manifest");
        for suite in suites {
            let name = suite.trim_end_matches(".rs");
            let text = fs::read_to_string(engine.join("tests").join(&suite)).expect("a suite");
            if !["Suite::new", "suite("].iter().any(|word| text.contains(word)) {
                complaints.push(format!("{}: {suite} does not run the suite", engine.display()));
            }
            if !manifest.contains(&format!("name = \"{name}\"\nharness = false")) {
                complaints.push(format!("{}: [[test]] {name} needs harness = false", engine.display()));
            }
        }
    }
    no_complaints(complaints);
}

#[test]
fn every_engine_has_its_page_and_is_known_to_the_facade() {
    let facade = fs::read_to_string(root().join("crates/lockkeeper/src/engines.rs")).expect("the facade");
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let mut complaints = Vec::new();
    for engine in engines() {
        let name = engine.file_name().expect("a name").to_string_lossy().into_owned();
        if !engine.join("README.md").exists() {
            complaints.push(format!("engines/{name}: its page README.md is missing"));
        }
        if !facade.contains(&format!(": lockkeeper_{name} [")) {
            complaints.push(format!("engines/{name}: crates/lockkeeper/src/engines.rs does not know it"));
        }
        if !readme.contains(&format!("engines/{name}/README.md")) {
            complaints.push(format!("engines/{name}: the README does not link its page"));
        }
    }
    no_complaints(complaints);
}

/// Links in our documents lead somewhere.
#[test]
fn every_fuzz_target_has_its_corpus() {
    let mut complaints = Vec::new();
    for target in files(&root().join("fuzz/fuzz_targets")) {
        let corpus = Path::new("fuzz/corpus").join(target.file_stem().expect("a name"));
        if !root().join(&corpus).is_dir() {
            complaints.push(format!("scripts/fuzz begins with {}, which is not there", corpus.display()));
        }
    }
    no_complaints(complaints);
}

#[test]
fn every_relative_link_in_the_documents_exists() {
    let mut complaints = Vec::new();
    for (path, text) in with_ending("md") {
        let folder = root().join(&path).parent().expect("a folder").to_path_buf();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            let outside = target.is_empty() || target.contains("://") || target.starts_with("mailto:");
            if !outside && !folder.join(target).exists() {
                complaints.push(format!("{path}: the link to {target} leads nowhere"));
            }
        }
    }
    no_complaints(complaints);
}
