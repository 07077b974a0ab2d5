//! The book is whole: every page is in its summary, what it includes is there, and every block of code is run or compiled.

use super::{files_below, no_complaints, root};
use std::collections::BTreeSet;

const BOOK: &str = "docs/book/";

fn pages() -> Vec<(String, String)> {
    let pages = files_below(BOOK).filter(|(path, _)| path.ends_with(".md"));
    pages.map(|(path, text)| (path[BOOK.len()..].to_owned(), text)).collect()
}

#[test]
fn the_summary_has_every_page_once() {
    let summary = std::fs::read_to_string(root().join(BOOK).join("SUMMARY.md")).expect("the summary");
    let listed: Vec<&str> = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let there: BTreeSet<String> =
        pages().into_iter().map(|(path, _)| path).filter(|path| path != "SUMMARY.md").collect();
    assert_eq!(listed.len(), there.len());
    assert_eq!(listed.into_iter().map(str::to_owned).collect::<BTreeSet<_>>(), there);
}

#[test]
fn every_engine_is_in_the_book() {
    let missing = super::engines().into_iter().filter_map(|engine| {
        let name = engine.file_name()?.to_string_lossy().into_owned();
        let page = root().join(BOOK).join("engines").join(format!("{name}.md"));
        (!page.exists()).then(|| format!("{BOOK}engines/{name}.md is missing"))
    });
    no_complaints(missing.collect());
}

#[test]
fn what_the_book_includes_is_there() {
    let mut complaints = Vec::new();
    for (path, text) in pages() {
        let folder = root().join(BOOK).join(&path).parent().expect("a folder").to_path_buf();
        for included in text.split("{{#include ").skip(1).filter_map(|rest| rest.split("}}").next()) {
            if !folder.join(included).is_file() {
                complaints.push(format!("{path}: there is no {included} to include"));
            }
        }
    }
    no_complaints(complaints);
}

#[test]
fn every_link_of_the_book_stays_within_it() {
    let folder = root().join("target/book-test");
    let mut collect = std::process::Command::new("python3");
    collect.arg(root().join(BOOK).join("pages.py")).arg("collect").arg(&folder);
    let output = collect.output().expect("python3");
    let complaints = String::from_utf8_lossy(&output.stderr);
    no_complaints(complaints.lines().map(str::to_owned).collect());
    assert!(output.status.success());
    let shown = [
        "files/docs/queue.svg",
        "files/docs/images/token.svg",
        "files/docs/bench/throughput.svg",
        "engines/redis.md",
        "fencing.md",
    ];
    for shown in shown {
        assert!(folder.join(shown).is_file(), "{shown} is missing");
    }
}

/// The pages with the files that have their text.
fn texts() -> Vec<(String, String)> {
    let texts = pages().into_iter().map(|(path, text)| {
        let folder = root().join(BOOK).join(&path).parent().expect("a folder").to_path_buf();
        let Some(included) = text.trim().strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"))
        else {
            return (format!("{BOOK}{path}"), text);
        };
        let file = folder.join(included).canonicalize().expect("a file to include");
        let text = std::fs::read_to_string(&file).expect("a text");
        (file.strip_prefix(root()).expect("below the root").display().to_string(), text)
    });
    texts.collect()
}

/// `console` is run and `sh` understood by the command line's tests, `rust` compiled with the facade's documentation or with
/// that of its own crate, `sql` run by the engine's test of permissions, the clients' by their own. `text` is a
/// drawing; a block says which of these it is.
#[test]
fn every_block_of_code_in_the_book_is_run_or_compiled() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap_or_default();
    let console = read("crates/cli/tests/recipes.rs");
    let shell = read("crates/cli/tests/documentation.rs");
    let facade = read("crates/lockkeeper/src/lib.rs");
    let python = ["test_readme.py", "test_blocking.py"]
        .map(|file| read(&format!("clients/python/tests/{file}")))
        .concat();
    let javascript =
        ["readme", "behaviours"].map(|file| read(&format!("clients/js/test/{file}.test.js"))).concat();
    let go = read("clients/go/readme_test.go");
    let mut complaints = Vec::new();
    for (path, text) in texts() {
        let of_crate =
            |file: &str| path.strip_suffix("README.md").map(|folder| read(&format!("{folder}{file}")));
        let includes_page = |file: &str| of_crate(file).is_some_and(|text| text.contains("README.md\")"));
        let quoted = format!("\"{path}\"");
        let fences = text.lines().filter_map(|line| line.strip_prefix("```"));
        for language in fences.step_by(2) {
            let is_checked = match language {
                "text" => true,
                "console" => console.contains(&quoted) || includes_page("tests/engine/row.rs"),
                "sh" => shell.contains(&quoted),
                "rust" => facade.contains(&path) || includes_page("src/lib.rs"),
                "python" => python.contains(&quoted),
                "ts" | "js" => javascript.contains(&quoted),
                "go" => go.contains(&quoted),
                "sql" => includes_page("tests/engine/permissions.rs"),
                _ => false,
            };
            if !is_checked {
                complaints.push(format!("{path}: nothing checks its block '{language}'"));
            }
        }
    }
    no_complaints(complaints);
}
