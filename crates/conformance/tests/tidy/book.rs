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

/// `console` is run by the command line's tests, `rust` by the facade's documentation tests, `text` is a drawing.
#[test]
fn every_block_of_code_in_the_book_is_run_or_compiled() {
    let console = std::fs::read_to_string(root().join("crates/cli/tests/recipes.rs")).expect("the tests");
    let rust = std::fs::read_to_string(root().join("crates/lockkeeper/src/lib.rs")).expect("the facade");
    let mut complaints = Vec::new();
    for (path, text) in pages() {
        let fences = text.lines().filter_map(|line| line.strip_prefix("```"));
        for language in fences.step_by(2) {
            let is_checked = match language {
                "console" => console.contains(&format!("{BOOK}{path}")),
                "rust" => rust.contains(&format!("{BOOK}{path}")),
                language => language == "text",
            };
            if !is_checked {
                complaints.push(format!("{path}: nothing checks its block '{language}'"));
            }
        }
    }
    no_complaints(complaints);
}
