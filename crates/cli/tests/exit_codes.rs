//! Every exit status of the command line, and what it says with it.

mod support;

use support::Place;

fn says(place: &Place, arguments: &[&str], status: i32, words: &[&str]) {
    let (got, text) = place.status(arguments);
    assert_eq!(got, status, "{arguments:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{arguments:?} does not say {word:?}: {text}");
    }
    assert!(text.is_empty() || text.starts_with("lockkeeper: "), "{text}");
}

#[test]
fn the_commands_own_status_comes_through() {
    let place = Place::new();
    says(&place, &["run", "x", "--", "true"], 0, &[]);
    says(&place, &["run", "x", "--", "sh", "-c", "exit 3"], 3, &[]);
    says(&place, &["run", "x", "--", "sh", "-c", "exit 255"], 255, &[]);
    place.assert_empty();
}

#[test]
fn a_signal_that_ended_the_command_is_128_and_its_number() {
    let place = Place::new();
    says(&place, &["run", "x", "--", "sh", "-c", "kill -KILL $$"], 137, &[]);
    says(&place, &["run", "x", "--", "sh", "-c", "kill -TERM $$"], 143, &[]);
    place.assert_empty();
}

#[test]
fn a_wait_that_ends_without_the_lock_is_75_and_says_who_holds() {
    let place = Place::new();
    let holder = place.hold(&["x", "--holder", "the other one"]);
    says(&place, &["run", "--no-wait", "x", "--", "echo", "never"], 75, &["the other one"]);
    says(&place, &["run", "--wait", "50ms", "x", "--", "echo", "never"], 75, &["within 50ms"]);
    let output = place.output(["run", "--no-wait", "x", "--", "echo", "never"]);
    assert!(output.stdout.is_empty(), "the command must not run");
    place.until_claims("x", 1);
    assert_eq!(holder.finish(), 0);
    place.assert_empty();
}

#[test]
fn an_engine_that_cannot_be_used_is_69() {
    let place = Place::new();
    let file = place.path("a-file");
    std::fs::write(&file, "").unwrap();
    let url = format!("file:{}/locks", file.display());
    says(&place, &["--engine", &url, "run", "x", "--", "true"], 69, &["a-file"]);
    says(&place, &["--engine", &url, "ls"], 69, &["a-file"]);
}

#[test]
fn wrong_usage_is_64_and_says_what_to_do() {
    let place = Place::new();
    says(&place, &["run", "x", "true"], 64, &["Usage"]);
    says(&place, &["run", "--", "true"], 64, &["NAME"]);
    says(&place, &["frobnicate"], 64, &["frobnicate"]);
    says(&place, &[], 64, &["subcommand"]);
    says(&place, &["run", "--wait", "10", "x", "--", "true"], 64, &["bad duration", "10s"]);
    says(&place, &["run", "--wait", "1s", "--no-wait", "x", "--", "true"], 64, &["cannot be used with"]);
    says(&place, &["run", "--read", "--permits", "1/2", "x", "--", "true"], 64, &["cannot be used with"]);
    for shares in [&["--read"][..], &["--permits", "1/2"], &["--wait", "1s"]] {
        // Others would run in the same period.
        let arguments = [&["run", "--once-per", "1m"], shares, &["x", "--", "true"]].concat();
        says(&place, &arguments, 64, &["--once-per", "cannot be used with"]);
    }
    says(&place, &["run", "--permits", "3/2", "x", "--", "true"], 64, &["K/N"]);
    says(&place, &["run", "--permits", "exclusive", "x", "--", "true"], 64, &["K/N"]);
    says(&place, &["run", "a//b", "--", "true"], 64, &["bad lock name", "empty segment"]);
    says(&place, &["show", "../x"], 64, &["bad lock name"]);
    says(&place, &["run", "x", "x", "--", "true"], 64, &["named twice"]);
    says(&place, &["run", "a,b", "c", "--", "true"], 64, &["commas"]);
    says(&place, &["run", "--ttl", "1ms", "x", "--", "true"], 64, &["too short"]);
    says(&place, &["--engine", "nosuch://host", "ls"], 64, &["nosuch", "memory", "file"]);
    says(&place, &["--engine", "nothing", "ls"], 64, &["SCHEME"]);
    says(&place, &["--engine", "memory:?colour=blue", "ls"], 64, &["colour"]);
    place.assert_empty();
}

#[test]
fn one_name_may_have_a_comma() {
    let place = Place::new();
    let output = place.output(["run", "a,b", "--", "sh", "-c", "echo $LOCKKEEPER_LOCK"]);
    assert_eq!(output.stdout, b"a,b\n");
}

#[test]
fn two_kinds_of_lock_under_one_name_are_refused() {
    let place = Place::new();
    let holder = place.hold(&["--permits", "1/2", "x"]);
    says(&place, &["run", "--no-wait", "x", "--", "true"], 64, &["semaphore of 2 permits"]);
    assert_eq!(holder.finish(), 0);
}

#[test]
fn a_command_that_is_not_there_is_127_and_frees_the_lock() {
    let place = Place::new();
    says(&place, &["run", "x", "--", "/no/such/command"], 127, &["command not found", "/no/such/command"]);
    place.assert_empty();
}

#[test]
fn a_command_that_cannot_be_executed_is_126_and_frees_the_lock() {
    let place = Place::new();
    let file = place.path("plain");
    std::fs::write(&file, "just text").unwrap();
    says(&place, &["run", "x", "--", file.to_str().unwrap()], 126, &["cannot execute"]);
    place.assert_empty();
}

#[test]
fn help_and_version_are_no_errors() {
    let place = Place::new();
    for arguments in [&["--help"][..], &["run", "--help"], &["help", "watch"], &["--version"]] {
        let output = place.output(arguments);
        assert_eq!(output.status.code(), Some(0));
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    }
}

#[test]
fn it_is_quiet_unless_asked() {
    let place = Place::new();
    let quiet = place.lockkeeper(["run", "x", "--", "true"]).env("RUST_LOG", "trace").output().unwrap();
    assert!(quiet.stderr.is_empty(), "{quiet:?}");
    let loud = place.lockkeeper(["run", "-v", "x", "--", "true"]).output().unwrap();
    let text = String::from_utf8(loud.stderr).unwrap();
    assert!(text.contains("granted") && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn an_empty_engine_is_refused_and_not_replaced_by_local_files() {
    let place = Place::new();
    for arguments in [&["ls"][..], &["run", "x", "--", "echo", "never"], &["show", "x"], &["watch"]] {
        let output = place.lockkeeper(arguments).env("LOCKKEEPER_URL", "").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty(), "the command must not run");
        assert!(text.contains("LOCKKEEPER_URL is empty") && text.contains("unset it"), "{text}");
    }
    says(&place, &["-e", "", "ls"], 64, &["--engine is empty", "leave the option out"]);
    says(&place, &["-e", "", "run", "x", "--", "true"], 64, &["--engine is empty"]);
}

#[test]
fn the_environment_sets_namespace_and_ttl() {
    let place = Place::new();
    let holder = place.hold(&["--namespace", "shop", "x"]);
    let tries = |namespace: &str, more: &[&str]| {
        let mut command = place.lockkeeper(["run", "--no-wait"]);
        command.args(more).args(["x", "--", "true"]).env("LOCKKEEPER_NAMESPACE", namespace);
        let output = command.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(tries("shop", &[]).0, 75);
    assert_eq!(tries("bank", &[]), (0, String::new()));
    assert_eq!(tries("bank", &["--namespace", "shop"]).0, 75, "the option wins");
    let (status, text) = tries("", &[]);
    assert!(status == 64 && text.contains("LOCKKEEPER_NAMESPACE is empty"), "{status} {text}");
    assert_eq!(holder.finish(), 0);
    let with_ttl = |ttl: &str| {
        let output = place.lockkeeper(["ls"]).env("LOCKKEEPER_TTL", ttl).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(with_ttl("2s").0, 0);
    let (status, text) = with_ttl("1ms");
    assert!(status == 64 && text.contains("too short"), "{status} {text}");
    assert_eq!(with_ttl("").0, 64);
}

#[test]
fn the_status_of_a_lock_that_is_not_acquired_can_be_chosen() {
    let place = Place::new();
    let holder = place.hold(&["x"]);
    says(&place, &["run", "-n", "-E", "0", "x", "--", "true"], 0, &["did not acquire"]);
    says(&place, &["run", "-w", "50ms", "--conflict-exit-code", "9", "x", "--", "true"], 9, &["within 50ms"]);
    says(&place, &["run", "-n", "-E", "256", "x", "--", "true"], 64, &["256"]);
    assert_eq!(holder.finish(), 0);
    says(&place, &["run", "-n", "-E", "9", "x", "--", "sh", "-c", "exit 3"], 3, &[]);
}

#[test]
fn a_command_that_is_not_there_is_noticed_before_the_wait() {
    let place = Place::new();
    let holder = place.hold(&["x"]);
    let file = place.path("plain");
    std::fs::write(&file, "just text").unwrap();
    // Without a limit: a call that waited would never end.
    says(&place, &["run", "x", "--", "/no/such/command"], 127, &["command not found"]);
    says(&place, &["run", "x", "--", "no-such-command"], 127, &["command not found"]);
    says(&place, &["run", "x", "--", file.to_str().unwrap()], 126, &["cannot execute"]);
    assert_eq!(place.standings("x"), ["holds"]);
    assert_eq!(holder.finish(), 0);
}

#[test]
fn a_missing_separator_is_suggested() {
    let place = Place::new();
    says(&place, &["run", "a", "echo", "hi"], 64, &["lockkeeper run a -- echo hi", "Usage"]);
    says(&place, &["run", "-n", "a", "echo", "hi"], 64, &["lockkeeper run -n a -- echo hi"]);
    says(&place, &["--ttl", "5s", "run", "a", "echo", "hi"], 64, &["lockkeeper --ttl 5s run a -- echo hi"]);
    for url in [&["-e", "redis://:secret@h"][..], &["--engine=redis://:secret@h"]] {
        let (status, text) = place.status([url, &["run", "a", "echo", "hi"]].concat());
        assert!(status == 64 && text.contains("URL run a -- echo hi") && !text.contains("secret"), "{text}");
    }
    says(&place, &["run", "a", "ls", "-l"], 64, &["lockkeeper run NAME -- COMMAND"]);
    says(&place, &["run", "a"], 64, &["lockkeeper run a -- COMMAND"]);
    place.assert_empty();
}

/// A server of another kind: reads, and answers as HTTP servers do.
fn http_server() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                use std::io::{Read, Write};
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
            });
        }
    });
    port
}

#[test]
fn connection_errors_name_the_server_and_what_was_expected_there() {
    let place = Place::new();
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let http = http_server();
    let check = |scheme: &str, path: &str, product: &str| {
        let url = format!("{scheme}://127.0.0.1:{unused}{path}");
        let nothing = format!("nothing listens on 127.0.0.1:{unused} ({product} expected there)");
        says(&place, &["-e", &url, "ls"], 69, &[&nothing]);
        let url = format!("{scheme}://127.0.0.1:{http}{path}");
        says(&place, &["-e", &url, "ls"], 69, &[&format!("127.0.0.1:{http} answers HTTP, not {product}")]);
    };
    // Some engines try for seconds, so all do at the same time.
    std::thread::scope(|scope| {
        scope.spawn(|| check("redis", "", "Redis"));
        scope.spawn(|| check("postgres", "/shop", "PostgreSQL"));
        scope.spawn(|| check("mysql", "/shop", "MySQL or MariaDB"));
        scope.spawn(|| check("etcd", "", "etcd"));
        scope.spawn(|| check("zookeeper", "", "ZooKeeper"));
        scope.spawn(|| {
            let url = format!("redlock://127.0.0.1:{unused},127.0.0.1:{http},127.0.0.1:1");
            let words = ["nothing listens on", "answers HTTP, not Redis", "127.0.0.1:1 "];
            says(&place, &["-e", &url, "ls"], 69, &words);
        });
    });
}
