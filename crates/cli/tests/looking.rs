//! ls, show, watch, evict, engines: what they print, for people and for programs.

mod support;

use serde_json::Value;
use std::io::{BufRead, Read};
use std::process::Stdio;
use support::{Held, Place, until, wait};

fn text(place: &Place, arguments: &[&str]) -> String {
    let output = place.output(arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(place: &Place, arguments: &[&str]) -> Value {
    serde_json::from_str(&text(place, arguments)).unwrap()
}

#[test]
fn ls_lists_holders_and_waiters() {
    let place = Place::new();
    let holder = place.hold(&["orders/1", "--holder", "ann"]);
    let waiter = place.start_waiting(&["run", "orders/1", "--", "true"]);
    let other = place.hold(&["stock"]);
    place.until_claims("orders/1", 2);
    let table = text(&place, &["ls"]);
    let line = table.lines().find(|line| line.starts_with("orders/1")).unwrap();
    assert!(line.contains("ann") && line.contains(&holder.pid().to_string()), "{table}");
    assert!(line.contains("1     1"), "one holds, one waits: {table}");
    assert!(table.contains("stock"));
    assert!(!text(&place, &["ls", "orders/"]).contains("stock"));
    let locks = json(&place, &["ls", "--json"]);
    assert_eq!(locks.as_array().unwrap().len(), 2);
    assert_eq!(locks[0]["name"], "orders/1");
    assert_eq!(locks[0]["claims"][0]["who"], "ann");
    assert_eq!(holder.finish(), 0);
    assert_eq!(waiter.finish(), 0);
    assert_eq!(other.finish(), 0);
    assert_eq!(text(&place, &["ls"]).lines().count(), 1, "only the heading is left");
}

#[test]
fn show_has_the_queue_in_order_with_everything() {
    let place = Place::new();
    let holder = place.hold(&["x", "--holder", "first"]);
    let second = place.start_waiting(&["run", "x", "--holder", "second", "--", "true"]);
    place.until_claims("x", 2);
    let third = place.start_waiting(&["run", "x", "--read", "--holder", "third", "--", "true"]);
    place.until_claims("x", 3);
    let lock = json(&place, &["show", "x", "--json"]);
    let claims = lock["claims"].as_array().unwrap();
    let field = |name: &str| claims.iter().map(|claim| claim[name].clone()).collect::<Vec<_>>();
    assert_eq!(field("who"), ["first", "second", "third"]);
    assert_eq!(field("standing"), ["holds", "waits", "waits"]);
    assert_eq!(field("demand"), ["exclusive", "exclusive", "shared"]);
    assert_eq!(claims[0]["pid"], holder.pid());
    assert!(claims[0]["token"].is_u64() && claims[1]["token"].is_null(), "{lock}");
    assert!(claims.iter().all(|claim| claim["ttl_left_seconds"].is_f64()), "{lock}");
    let table = text(&place, &["show", "x"]);
    let words = [
        "1  holds",
        "2  waits for 1",
        "3  waits for 2",
        "first",
        "second",
        claims[2]["id"].as_str().unwrap(),
        "TTL LEFT",
        "TOKEN",
        "SINCE",
    ];
    assert!(words.iter().all(|word| table.contains(word)), "{table}");
    assert_eq!(holder.finish(), 0);
    assert_eq!(second.finish(), 0);
    assert_eq!(third.finish(), 0);
    assert_eq!(text(&place, &["show", "x"]), "x is free\n");
    assert_eq!(json(&place, &["show", "x", "--json"])["claims"], Value::Array(Vec::new()));
}

#[test]
fn the_holder_is_the_commands_name_without_its_arguments() {
    let place = Place::new();
    let held = place.hold(&["x"]);
    assert_eq!(place.show("x")["claims"][0]["who"], "sh");
    assert_eq!(held.finish(), 0);
}

#[test]
fn watch_prints_a_line_for_every_change_when_piped() {
    let place = Place::new();
    let mut watch = Held::start(place.lockkeeper(["watch", "job", "--every", "20ms"]));
    let holder = place.hold(&["job/1", "--holder", "ann"]);
    let line = watch.line();
    assert!(line.contains(" holds job/1 who=\"ann\"") && line.contains("token="), "{line}");
    let waiter = place.start_waiting(&["run", "job/1", "--holder", "bob", "--", "sh", "-c", support::HOLD]);
    assert!(watch.line().contains(" waits job/1 who=\"bob\""));
    assert_eq!(holder.finish(), 0);
    assert!(watch.line().contains(" left job/1 who=\"ann\""));
    assert!(watch.line().contains(" holds job/1 who=\"bob\""));
    assert_eq!(waiter.finish(), 0);
    assert!(watch.line().contains(" left job/1 who=\"bob\""));
}

#[test]
fn watch_ends_when_its_reader_has_gone() {
    let place = Place::new();
    let mut command = place.lockkeeper(["watch", "--every", "20ms"]);
    let mut watch = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(watch.stdout.take());
    assert!(wait(&mut watch).success());
}

#[test]
fn evict_needs_yes_without_a_terminal() {
    let place = Place::new();
    let holder = place.hold(&["x", "--on-lost", "ignore"]);
    let (status, said) = place.status(["evict", "x"]);
    assert_eq!(status, 64);
    assert!(said.contains("--yes"), "{said}");
    assert_eq!(place.standings("x"), ["holds"]);
    assert_eq!(place.status(["evict", "x", "--yes"]).0, 0);
    assert!(place.standings("x").is_empty());
    assert_eq!(place.status(["evict", "x", "--yes"]).0, 1, "nobody is left to evict");
    assert_eq!(holder.finish(), 0);
}

#[test]
fn evict_takes_one_claim_by_the_start_of_its_id() {
    let place = Place::new();
    let holder = place.hold(&["x"]);
    let waiter = place.start_waiting(&["run", "--ttl", "1s", "x", "--", "true"]);
    place.until_claims("x", 2);
    let id = place.show("x")["claims"][1]["id"].as_str().unwrap().to_owned();
    assert_eq!(place.status(["evict", "x", &id[..10], "--yes"]).0, 0);
    let (status, said) = waiter.end();
    assert_eq!(status, 75, "{said}");
    assert_eq!(place.standings("x"), ["holds"]);
    assert_eq!(place.status(["evict", "x", "no-such-claim", "--yes"]).0, 1);
    assert_eq!(holder.finish(), 0);
}

#[test]
fn engines_lists_what_each_can_do() {
    let place = Place::new();
    let table = text(&place, &["engines"]);
    assert!(table.contains("memory") && table.contains("file") && table.contains("at once"), "{table}");
    let engines = json(&place, &["engines", "--json"]);
    let file = engines.as_array().unwrap().iter().find(|engine| engine["schemes"][0] == "file").unwrap();
    assert_eq!(file["in_this_build"], true);
    assert_eq!(file["styles"][0]["fair"], true);
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let place = Place::new();
    for arguments in
        [&["engines"][..], &["completions", "bash"], &["man"], &["--help"], &["ls"], &["ls", "--json"]]
    {
        let mut command = place.lockkeeper(arguments);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(wait(&mut child).code(), Some(0), "{arguments:?}: {said}");
        assert_eq!(said, "", "{arguments:?}");
    }
}

#[test]
fn completions_and_man_pages_know_every_verb() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&place, &["completions", shell]);
        assert!(script.contains("evict") && script.contains("on-lost"), "{shell}");
    }
    assert!(text(&place, &["man"]).contains(".TH"));
    let dir = place.path("man1");
    assert_eq!(place.status(["man", "--dir", dir.to_str().unwrap()]).0, 0);
    for page in ["", "-run", "-ls", "-show", "-watch", "-evict", "-engines", "-completions", "-man"] {
        let page = std::fs::read_to_string(dir.join(format!("lockkeeper{page}.1"))).unwrap();
        assert!(page.contains(".TH"));
    }
    let run = std::fs::read_to_string(dir.join("lockkeeper-run.1")).unwrap();
    assert!(run.contains("on\\-lost") && run.contains("LOCKKEEPER_TOKEN"));
}

#[test]
fn the_default_engine_is_a_directory_of_this_users() {
    let place = Place::new();
    let mut command = place.lockkeeper(["run", "x", "--", "sh", "-c", support::HOLD]);
    command.env_remove("LOCKKEEPER_URL").env("XDG_RUNTIME_DIR", place.dir.path());
    let mut held = Held::start(command);
    assert_eq!(held.line(), "holding");
    assert!(place.path("lockkeeper").is_dir());
    let mut ls = place.lockkeeper(["ls", "--json"]);
    ls.env_remove("LOCKKEEPER_URL").env("XDG_RUNTIME_DIR", place.dir.path());
    let locks: Value = serde_json::from_slice(&ls.output().unwrap().stdout).unwrap();
    assert_eq!(locks[0]["name"], "x");
    assert_eq!(held.finish(), 0);
}

#[test]
fn output_of_many_locks_survives_a_reader_that_takes_one_line() {
    let place = Place::new();
    let holders: Vec<Held> = (0..5).map(|number| place.hold(&[&format!("lock/{number}")])).collect();
    let mut child = place.lockkeeper(["ls"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("NAME"));
    assert!(wait(&mut child).success());
    for holder in holders {
        assert_eq!(holder.finish(), 0);
    }
    until("empty list", || text(&place, &["ls"]).lines().count() == 1);
}

#[test]
fn schema_prints_statements_or_says_why_there_are_none() {
    let place = Place::new();
    assert!(text(&place, &["schema", "postgres"]).contains("CREATE TABLE IF NOT EXISTS lockkeeper_claims"));
    assert!(text(&place, &["schema", "mariadb", "--style", "row"]).contains("lockkeeper_rows"));
    assert!(text(&place, &["schema", "sqlite:/tmp/locks.db"]).contains("lockkeeper_claims"));
    let refusals = [
        (
            &["schema", "redis"][..],
            "needs nothing created beforehand; only these do: sqlite, postgres, mysql",
        ),
        (&["schema", "oracle"], "unknown engine 'oracle'"),
        (&["schema", "postgres", "--style", "plain"], "its styles are: queue, row, session, advisory"),
    ];
    for (arguments, why) in refusals {
        let output = place.output(arguments);
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(why), "{told}");
    }
}
