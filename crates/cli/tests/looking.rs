//! ls, show, evict, engines: what they print, for people and for programs.

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
    let free = text(&place, &["show", "x"]);
    assert!(free.starts_with("x is free: no claims on 'lockkeeper/x' at file://"), "{free}");
    assert!(free.ends_with("/locks (file, queue), namespace 'lockkeeper'\n"), "{free}");
    assert_eq!(json(&place, &["show", "x", "--json"])["claims"], Value::Array(Vec::new()));
    let pasted = text(&place, &["show", "lockkeeper/x"]);
    assert_eq!(pasted, free, "the name that was meant, with its namespace once");
}

#[test]
fn a_hold_is_shown_since_its_grant_and_a_wait_since_its_join() {
    let place = Place::new();
    let holder = place.hold(&["x", "--holder", "ann"]);
    let waiter =
        place.start_waiting(&["run", "x", "--ttl", "1s", "--holder", "bob", "--", "sh", "-c", support::HOLD]);
    let waited = |claim: &Value| claim["age_seconds"].as_f64().unwrap();
    until("the second has waited for a second", || {
        let lock = place.show("x");
        lock["claims"].get(1).is_some_and(|claim| claim["held_seconds"].is_null() && waited(claim) > 1.0)
    });
    assert_eq!(holder.finish(), 0);
    until("its time since the grant is known", || {
        let lock = place.show("x");
        let claim =
            lock["claims"].get(0).filter(|claim| claim["who"] == "bob" && claim["held_seconds"].is_f64());
        claim.is_some_and(|claim| waited(claim) - claim["held_seconds"].as_f64().unwrap() > 0.9)
    });
    let lock = place.show("x");
    assert_eq!(
        (&lock["engine"], &lock["style"], &lock["namespace"]),
        (&"file".into(), &"queue".into(), &"lockkeeper".into())
    );
    assert_eq!(waiter.finish(), 0);
}

#[test]
fn the_holder_is_the_commands_name_without_its_arguments() {
    let place = Place::new();
    let held = place.hold(&["x"]);
    assert_eq!(place.show("x")["claims"][0]["who"], "sh");
    assert_eq!(held.finish(), 0);
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
    assert_eq!(place.status(["evict", "x", "no-such-claim", "--yes"]).0, 1);
    // A wait goes on, at the back.
    place.until_claims("x", 2);
    assert_ne!(place.show("x")["claims"][1]["id"].as_str(), Some(id.as_str()));
    assert_eq!(holder.finish(), 0);
    let (status, said) = waiter.end();
    assert_eq!(status, 0, "{said}");
}

#[test]
fn engines_lists_what_each_can_do() {
    let place = Place::new();
    let table = text(&place, &["engines"]);
    assert!(table.contains("memory") && table.contains("file") && table.contains("at once"), "{table}");
    let engines = json(&place, &["engines", "--json"]);
    let locks = format!("file://{}", place.path("locks").display());
    assert_eq!(engines["selected"], serde_json::json!({ "url": locks, "source": "LOCKKEEPER_URL" }));
    let given = json(&place, &["--engine", "redis://ann:secret@cache", "engines", "--json"]);
    assert_eq!(given["selected"], serde_json::json!({ "url": "redis://cache", "source": "--engine" }));
    let file =
        engines["engines"].as_array().unwrap().iter().find(|engine| engine["schemes"][0] == "file").unwrap();
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
        assert!(script.contains("LOCKKEEPER_COMPLETE"), "{shell}");
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
    assert!(run.contains("lockkeeper run [OPTIONS] <NAME>... \\-\\- <COMMAND>..."), "{run}");
    for section in
        ["SYNOPSIS", "ENVIRONMENT", "EXAMPLES", "EXIT STATUS", "LOCKKEEPER_NAMESPACE", "LOCKKEEPER_TTL"]
    {
        assert!(run.contains(section), "{section}: {run}");
    }
    let main = std::fs::read_to_string(dir.join("lockkeeper.1")).unwrap();
    assert!(main.contains("lockkeeper [OPTIONS] <COMMAND>") && main.contains("LOCKKEEPER_URL"), "{main}");
}

/// The place is the same for a shell, a cron job and a service of the same user.
#[test]
fn the_default_engine_is_a_directory_of_this_users_whatever_the_environment() {
    let place = Place::new();
    let name = format!("default-{}", std::process::id());
    let mut command = place.lockkeeper(["run", &name, "--", "sh", "-c", support::HOLD]);
    command.env_remove("LOCKKEEPER_URL").env("XDG_RUNTIME_DIR", place.dir.path());
    let mut held = Held::start(command);
    assert_eq!(held.line(), "holding");
    let mut ls = place.lockkeeper(["ls", &name, "--json"]);
    ls.env_remove("LOCKKEEPER_URL").env_remove("XDG_RUNTIME_DIR").env("TMPDIR", place.dir.path());
    let locks: Value = serde_json::from_slice(&ls.output().unwrap().stdout).unwrap();
    assert_eq!(locks[0]["name"], name.as_str());
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

#[test]
fn a_name_with_its_namespace_is_found() {
    let place = Place::new();
    let holder = place.hold(&["orders/42", "--on-lost", "ignore"]);
    assert!(text(&place, &["show", "lockkeeper/orders/42"]).contains("holds"));
    assert!(text(&place, &["ls", "lockkeeper/orders"]).contains("orders/42"));
    assert_eq!(json(&place, &["show", "lockkeeper/orders/42", "--json"])["name"], "orders/42");
    let mut watch = Held::start(place.lockkeeper(["watch", "lockkeeper/orders", "--every", "20ms"]));
    assert!(watch.line().contains(" holds orders/42 "));
    // The exact name comes first.
    let other = place.hold(&["lockkeeper/orders/42"]);
    assert_eq!(json(&place, &["show", "lockkeeper/orders/42", "--json"])["name"], "lockkeeper/orders/42");
    assert_eq!(other.finish(), 0);
    assert_eq!(place.status(["evict", "lockkeeper/orders/42", "--yes"]).0, 0);
    assert!(place.standings("orders/42").is_empty());
    assert_eq!(holder.finish(), 0);
}

#[test]
fn what_is_free_or_empty_names_where_it_was_looked_for() {
    let place = Place::new();
    let (status, said) = place.status(["evict", "x", "--yes", "--namespace", "shop"]);
    assert_eq!(status, 1);
    assert!(said.contains("nobody holds 'x' at file://") && said.contains("namespace 'shop'"), "{said}");
    let free = text(&place, &["show", "x", "--namespace", ""]);
    assert!(free.contains("no claims on 'x'") && free.contains("no namespace"), "{free}");
    let free = text(&place, &["show", "x", "-e", "memory:?holder=secret"]);
    assert!(free.contains("memory") && !free.contains("secret"), "{free}");
}

#[test]
fn json_has_what_the_tables_have() {
    let place = Place::new();
    let holder = place.hold(&["a"]);
    let waiter = place.start_waiting(&["run", "a", "--", "true"]);
    place.until_claims("a", 2);
    for lock in [json(&place, &["ls", "--json"])[0].clone(), json(&place, &["show", "a", "--json"])] {
        let claims = lock["claims"].as_array().unwrap();
        assert_eq!(claims[1]["waits_for"][0], claims[0]["id"], "{lock}");
        assert_eq!(claims[0]["waits_for"].as_array().unwrap().len(), 0);
        assert!(claims[0]["since"].as_str().unwrap().ends_with('Z'), "{lock}");
        assert_eq!(lock["full_name"], "lockkeeper/a");
    }
    assert_eq!(holder.finish(), 0);
    assert_eq!(waiter.finish(), 0);
}

#[test]
fn a_deadlock_is_in_the_table_in_json_and_in_the_lines_of_watch() {
    let place = Place::new();
    let mut watch = Held::start(place.lockkeeper(["watch", "--every", "20ms"]));
    // Deadlocks are judged by processes, so each has to be one: the library, in this test and beside it.
    let mut other = std::process::Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", "the_other_side_of_a_deadlock", "--nocapture"]).env("LOCKKEEPER_URL", place.url());
    let mut other = Held::start({
        other.env("LOCKKEEPER_TEST_DEADLOCK", "1");
        other
    });
    while !other.line().contains("holding") {}
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let keeper = lockkeeper::connect(place.url()).await.unwrap();
        let _a = keeper.mutex("a").lock().await.unwrap();
        other.say("\n");
        let b = keeper.mutex("b");
        let waits = b.lock();
        let looks = tokio::task::spawn_blocking({
            let url = place.url();
            move || {
                let ls = |arguments: &[&str]| {
                    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
                    let output = command.args(["-e", &url]).args(arguments).output().unwrap();
                    String::from_utf8(output.stdout).unwrap()
                };
                until("deadlock", || ls(&["ls"]).contains("deadlock?"));
                // While the deadlock lasts: watch must have the time to see it.
                let mut line = watch.line();
                while !line.contains("deadlock? ") {
                    line = watch.line();
                }
                (line, serde_json::from_str::<Value>(&ls(&["ls", "--json"])).unwrap())
            }
        });
        let (line, locks) = tokio::select! {
            guard = waits => panic!("{guard:?}"),
            locks = looks => locks.unwrap(),
        };
        for lock in [&locks[0], &locks[1]] {
            let circle = lock["deadlocks"][0].as_array().unwrap();
            assert_eq!(circle.len(), 2, "{locks}");
            assert_eq!(circle[0]["behind_claim"].as_str().unwrap().len(), 32, "{locks}");
        }
        assert!(line.contains("waits for a behind") && line.contains("waits for b behind"), "{line}");
    });
}

/// Does nothing unless it is started by the test above: holds 'b', and waits for 'a' when it is told to.
#[test]
fn the_other_side_of_a_deadlock() {
    if std::env::var_os("LOCKKEEPER_TEST_DEADLOCK").is_none() {
        return;
    }
    let keeper = lockkeeper::blocking::Keeper::connect(std::env::var("LOCKKEEPER_URL").unwrap()).unwrap();
    let _b = keeper.mutex("b").lock().unwrap();
    println!("holding");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let _a = keeper.mutex("a").lock_within(support::LIMIT).unwrap();
}

#[test]
fn tables_fit_the_width_and_a_shown_id_can_be_evicted() {
    let place = Place::new();
    let name = "orders/a-rather-long-name/which-goes-on/and-on";
    let who = "a holder with a long text of its own";
    let holder = place.hold(&[name, "--holder", who, "--on-lost", "ignore"]);
    let waiter = place.start_waiting(&["run", name, "--holder", who, "--", "true"]);
    place.until_claims(name, 2);
    let at = |columns: &str, arguments: &[&str]| {
        let output = place.lockkeeper(arguments).env("COLUMNS", columns).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let id = place.show(name)["claims"][0]["id"].as_str().unwrap().to_owned();
    for columns in ["80", "50"] {
        for arguments in [&["ls"][..], &["show", name]] {
            let table = at(columns, arguments);
            let widest = table.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= columns.parse().unwrap(), "{widest} of {columns}:\n{table}");
        }
        let table = at(columns, &["show", name]);
        assert!(table.contains(&id[..8]) && !table.contains(&id) && table.contains("waits for 1"), "{table}");
        assert!(at(columns, &["show", name, "--wide"]).contains(&id));
        assert!(at(columns, &["ls", "--wide"]).contains(name));
        let table = at(columns, &["engines"]);
        let widest = table.lines().filter(|line| !line.starts_with("Selected"));
        assert!(widest.map(|line| line.chars().count()).max().unwrap() <= columns.parse().unwrap());
    }
    assert!(at("80", &["ls"]).contains("a holder"));
    assert_eq!(place.status(["evict", name, &id[..8], "--yes"]).0, 0);
    assert_eq!(holder.finish(), 0);
    assert_eq!(waiter.finish(), 0);
}

#[test]
fn engines_names_the_selected_one() {
    let place = Place::new();
    assert!(
        text(&place, &["engines"]).contains(&format!("Selected: file://{}", place.path("locks").display()))
    );
    let output = place.lockkeeper(["engines"]).env_remove("LOCKKEEPER_URL").output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains("Selected: file://") && table.contains("(the default)"), "{table}");
    let serving = text(&place, &["--server", "http://localhost:1", "engines"]);
    assert!(serving.contains("Selected: http://localhost:1 (--server)"), "{serving}");
}

/// Another client's lock: a plain key.
#[test]
fn holders_of_another_client_are_marked_everywhere() {
    use std::io::Write;
    let (place, redis) = (Place::new(), lockkeeper_testkit::Redis::start());
    let mut client = std::net::TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    client.write_all(b"SET job kz PX 60000\r\n").unwrap();
    let mut reply = [0; 5];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    let url = format!("{}?style=plain&namespace=", redis.url());
    for arguments in [&["ls", "job"][..], &["show", "job"]] {
        let table = text(&place, &[&["-e", &url], arguments].concat());
        assert!(table.contains("(another client)") && !table.contains("pid 0"), "{table}");
        assert!(!table.contains("(,"), "{table}");
    }
    let (status, said) = place.status(["-e", &url, "run", "-n", "job", "--", "true"]);
    assert_eq!(status, 75);
    assert!(said.contains("(another client)") && !said.contains("pid 0"), "{said}");
    let mut watch = Held::start(place.lockkeeper(["-e", &url, "watch", "job", "--every", "20ms"]));
    let line = watch.line();
    assert!(line.contains("client=another") && !line.contains("pid=0"), "{line}");
}

/// As bash does: the words so far, and which one is being completed.
fn completed(place: &Place, words: &[&str]) -> Vec<String> {
    let mut command = place.lockkeeper(["--", "lockkeeper"]);
    command
        .args(words)
        .env("LOCKKEEPER_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string());
    let output = command.env("_CLAP_IFS", "\n").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_commands_options_lock_names_engines_and_programs() {
    let place = Place::new();
    let holder = place.hold(&["orders/42"]);
    assert!(completed(&place, &["ev"]).contains(&"evict".into()));
    assert!(completed(&place, &["run", "--on"]).contains(&"--on-lost".into()));
    assert!(completed(&place, &["run", "--on-lost", "i"]).contains(&"ignore".into()));
    for words in [&["show", "ord"][..], &["run", "ord"], &["evict", "o"], &["ls", "orders/"], &["watch", ""]]
    {
        assert!(completed(&place, words).contains(&"orders/42".into()), "{words:?}");
    }
    let elsewhere = format!("file:{}", place.path("empty").display());
    assert!(!completed(&place, &["-e", &elsewhere, "show", "ord"]).contains(&"orders/42".into()));
    assert!(completed(&place, &["-e", "redis"]).iter().any(|url| url.starts_with("redis://")));
    assert!(completed(&place, &["schema", "post"]).contains(&"postgres".into()));
    assert!(completed(&place, &["run", "x", "--", "sle"]).contains(&"sleep".into()));
    std::fs::write(place.path("sleepy.txt"), "").unwrap();
    assert_eq!(completed(&place, &["run", "x", "--", "cat", "sle"]), ["sleepy.txt"]);
    assert!(completed(&place, &["elect", "ord"]).contains(&"orders/42".into()));
    assert!(completed(&place, &["elect", "x", "--", "sle"]).contains(&"sleep".into()));
    assert_eq!(completed(&place, &["elect", "x", "--", "cat", "sle"]), ["sleepy.txt"]);
    assert_eq!(holder.finish(), 0);
}
