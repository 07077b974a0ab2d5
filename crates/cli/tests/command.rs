//! What the command gets: its variables, standard input, signals, a process group of its own.

mod support;

use rustix::process::Signal;
use support::{LIVE_ON, Place, lives, until};

#[test]
fn the_command_finds_its_lock_and_a_growing_token() {
    let place = Place::new();
    let show = ["run", "orders/42", "--", "sh", "-c", "echo $LOCKKEEPER_LOCK $LOCKKEEPER_TOKEN"];
    let mut last = 0;
    for _ in 0..3 {
        let text = String::from_utf8(place.output(show).stdout).unwrap();
        let (name, token) = text.trim().split_once(' ').unwrap();
        assert_eq!(name, "orders/42");
        let token: u64 = token.parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}

#[test]
fn several_names_come_with_their_tokens_in_the_order_given() {
    let place = Place::new();
    for names in [["b", "a"], ["a", "b"]] {
        // The command asks the engine itself for each lock's token.
        let line =
            "echo $LOCKKEEPER_LOCK; echo $LOCKKEEPER_TOKEN; \"$0\" show $1 --json; \"$0\" show $2 --json";
        let shown = ["sh", "-c", line, env!("CARGO_BIN_EXE_lockkeeper"), names[0], names[1]];
        let output = place.output([&["run", names[0], names[1], "--"], &shown[..]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let (said, shown) = text.split_at(text.find('{').unwrap());
        let said: Vec<&str> = said.lines().collect();
        assert_eq!(said[0], names.join(","));
        let shown = serde_json::Deserializer::from_str(shown).into_iter::<serde_json::Value>();
        let shown: Vec<String> = shown.map(|lock| lock.unwrap()["claims"][0]["token"].to_string()).collect();
        assert_eq!(said[1], shown.join(","));
    }
}

#[test]
fn standard_input_goes_to_the_command() {
    let place = Place::new();
    let mut held = place.start(&["run", "x", "--", "sh", "-c", "echo holding; cat"]);
    held.say("one\ntwo\n");
    assert_eq!(held.line(), "one");
    assert_eq!(held.line(), "two");
    assert_eq!(held.finish(), 0);
}

#[test]
fn signals_go_to_the_whole_group() {
    for (signal, name, status) in [
        (Signal::TERM, "TERM", 143),
        (Signal::INT, "INT", 130),
        (Signal::HUP, "HUP", 129),
        (Signal::QUIT, "QUIT", 131),
    ] {
        let place = Place::new();
        // The grandchild is told only by its group; the shell's end alone would not end it.
        let line = format!(
            "ulimit -c 0; sh -c 'trap \"echo grandchild; exit\" {name}; echo ready; {LIVE_ON}'; exit 1"
        );
        let mut held = place.start_waiting(&["run", "x", "--", "sh", "-c", &line]);
        assert_eq!(held.line(), "ready");
        held.signal(signal);
        assert_eq!(held.line(), "grandchild", "{name}");
        assert_eq!(held.end().0, status, "{name}");
        place.assert_empty();
    }
}

#[test]
fn user_signals_go_to_the_command_which_may_live_on() {
    let place = Place::new();
    let line = format!("trap 'echo one' USR1; trap 'echo two' USR2; echo holding; {LIVE_ON}");
    let mut held = place.start(&["run", "x", "--", "sh", "-c", &line]);
    held.signal(Signal::USR1);
    assert_eq!(held.line(), "one");
    held.signal(Signal::USR2);
    assert_eq!(held.line(), "two");
    held.signal(Signal::TERM);
    assert_eq!(held.end().0, 143);
}

#[test]
fn a_command_that_handles_its_signal_chooses_the_status() {
    let place = Place::new();
    let line = format!("trap 'exit 7' TERM; echo holding; {LIVE_ON}");
    let held = place.start(&["run", "x", "--", "sh", "-c", &line]);
    held.signal(Signal::TERM);
    assert_eq!(held.end().0, 7);
    place.assert_empty();
}

#[test]
fn what_is_ignored_stays_ignored() {
    let place = Place::new();
    // As under nohup: the shell ignores HUP, and the binary inherits that.
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    let line = format!("trap '' HUP; exec {binary} run x -- sh -c 'echo holding; kill -HUP $$; cat'");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &line]).env("LOCKKEEPER_URL", place.url());
    let mut held = support::Held::start(command);
    assert_eq!(held.line(), "holding");
    held.signal(Signal::HUP);
    held.say("alive\n");
    assert_eq!(held.line(), "alive");
    assert_eq!(held.finish(), 0);
}

#[test]
fn what_the_command_leaves_behind_is_left_alone_but_the_lock_is_free() {
    let place = Place::new();
    let line = "sleep 60 > /dev/null 2>&1 & echo $!";
    let output = place.output(["run", "x", "--", "sh", "-c", line]);
    let pid: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert_eq!(output.status.code(), Some(0));
    place.assert_empty();
    assert!(lives(pid), "a daemon that the command starts outlives it");
    let pid_t = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(pid_t, Signal::KILL).unwrap();
    until("end of the daemon", || !lives(pid));
}

#[test]
fn a_command_that_is_stopped_by_somebody_keeps_the_lock() {
    let place = Place::new();
    let line = "echo holding; echo $$; read answer; echo done";
    let mut held = place.start(&["run", "--ttl", "1s", "x", "--", "sh", "-c", line]);
    let pid: i32 = held.line().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    // Longer than the TTL: nobody else gets it, since we renew.
    let (status, _) = place.status(["run", "--ttl", "1s", "--wait", "2s", "x", "--", "true"]);
    assert_eq!(status, 75);
    rustix::process::kill_process(pid, Signal::CONT).unwrap();
    held.say("\n");
    assert_eq!(held.line(), "done");
    assert_eq!(held.finish(), 0);
}
