//! What another client calls its lock and itself does no harm in a terminal.

mod support;

use lockkeeper_testkit::Redis;
use std::io::{Read, Write};
use std::net::TcpStream;
use support::{Held, Place};

/// Sets the terminal's title, clears the screen, begins a line of its own and turns the rest around.
const HOSTILE: &str = "evil\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}2J\r\nholds fake\u{2028}x\u{202e}txt";

/// Another client's lock in the style 'plain': a key with a value.
fn set(redis: &Redis, key: &str, value: &str) {
    let mut client = TcpStream::connect(("127.0.0.1", redis.port())).unwrap();
    let words = ["SET", key, value, "PX", "60000"];
    let command: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
    client.write_all(format!("*{}\r\n{command}", words.len()).as_bytes()).unwrap();
    let mut reply = [0; 5];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
}

#[track_caller]
fn assert_harmless(text: &str) {
    assert!(text.contains("evil"), "{text:?}");
    let is_harmful = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{2028}'..='\u{202e}'));
    assert!(!text.contains(is_harmful), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("holds fake")), "{text:?}");
}

#[test]
fn names_and_holders_of_another_client_send_nothing_to_the_terminal() {
    let (place, redis) = (Place::new(), Redis::start());
    set(&redis, "job", HOSTILE);
    set(&redis, HOSTILE, "somebody");
    let url = format!("{}?style=plain&namespace=", redis.url());
    let said = |arguments: &[&str]| {
        let output = place.output([&["-e", &url], arguments].concat());
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    assert_harmless(&said(&["ls"]).0);
    assert_eq!(said(&["ls"]).0.lines().count(), 3, "a heading and two locks");
    assert_harmless(&said(&["show", "job"]).0);
    assert_harmless(&said(&["show", "job", "--wide"]).0);
    assert_harmless(&said(&["show", HOSTILE]).1);
    assert_harmless(&said(&["run", "-n", "job", "--", "true"]).1);
    let mut watch = Held::start(place.lockkeeper(["-e", &url, "watch", "--every", "20ms"]));
    for _ in 0..2 {
        let line = watch.line();
        assert!(line.contains(" holds "), "{line:?}");
        assert_harmless(&line);
    }
}

/// The shell would write them into the line that is being typed.
#[test]
fn a_hostile_name_is_no_completion() {
    let (place, redis) = (Place::new(), Redis::start());
    set(&redis, HOSTILE, "somebody");
    set(&redis, "evict-me", "somebody");
    let mut command = place.lockkeeper(["--", "lockkeeper", "show", "ev"]);
    command.env("LOCKKEEPER_URL", format!("{}?style=plain&namespace=", redis.url()));
    command.env("LOCKKEEPER_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", "2").env("_CLAP_IFS", "\n");
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "evict-me");
}
