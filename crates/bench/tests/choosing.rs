//! The page that compares the engines has the tables of the run that is kept beside it, and its pictures.

use lockkeeper_bench::command::Outcome;
use lockkeeper_bench::markdown;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

#[test]
fn the_tables_are_those_of_the_saved_run() {
    let page = std::fs::read_to_string(docs().join("choosing.md")).unwrap();
    let outcome = Outcome::load(&docs().join("bench/bench.json")).unwrap();
    let renewed = markdown::renew(&page, &outcome).unwrap();
    assert!(
        page == renewed,
        "renew it: lockkeeper bench --from docs/bench/bench.json --markdown docs/choosing.md"
    );
    assert!(page.matches("<!-- bench:").count() >= 14);
}

#[test]
fn every_picture_and_page_it_links_to_is_there() {
    let page = std::fs::read_to_string(docs().join("choosing.md")).unwrap();
    let mut links = 0;
    for (at, _) in page.match_indices("](") {
        let link = page[at + 2..].split(')').next().unwrap();
        assert!(docs().join(link).is_file(), "{link} is missing");
        links += 1;
    }
    assert!(links > 10);
}
