//! In a terminal: the spinner, the question before an eviction, the foreground for the command.

mod support;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use support::{Held, LIMIT, Place, wait};

/// A pseudo terminal: what a person would see and type.
struct Terminal {
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
    path: String,
}

impl Terminal {
    fn open() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = openpt(flags).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let path = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        let keyboard = File::from(controller);
        let mut reader = keyboard.try_clone().unwrap();
        let (sender, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let _ = sender.send(bytes[..count].to_vec());
            }
        });
        Self { keyboard, screen, seen: String::new(), path }
    }

    /// The end that a program has.
    fn end(&self) -> OwnedFd {
        File::options().read(true).write(true).open(&self.path).unwrap().into()
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn until_shows(&mut self, text: &str) {
        let start = Instant::now();
        while !self.seen.contains(text) {
            assert!(start.elapsed() < LIMIT, "no {text:?}: {:?}", self.seen);
            self.read();
        }
    }

    fn read(&mut self) {
        let bytes = self.screen.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("no more: {:?}", self.seen));
        self.seen += &String::from_utf8_lossy(&bytes);
    }
}

#[test]
fn a_waiter_shows_its_place_and_who_holds() {
    let place = Place::new();
    let holder = place.hold(&["x", "--holder", "ann"]);
    let first = place.start_waiting(&["run", "x", "--", "true"]);
    place.until_claims("x", 2);
    let mut terminal = Terminal::open();
    let mut waiter = place.lockkeeper(["run", "x", "--", "true"]).stderr(terminal.end()).spawn().unwrap();
    terminal.until_shows("waiting for x: place 2 of 2, held by ann");
    assert_eq!(holder.finish(), 0);
    assert_eq!(first.finish(), 0);
    assert!(wait(&mut waiter).success());
    terminal.until_shows("\r\u{1b}[2K");
}

#[test]
fn an_eviction_asks_first() {
    let place = Place::new();
    let holder = place.hold(&["x", "--on-lost", "ignore"]);
    for (answer, status, claims) in [("n\n", 1, 1), ("\n", 1, 1), ("y\n", 0, 0)] {
        let mut terminal = Terminal::open();
        let mut evict = place.lockkeeper(["evict", "x"]);
        evict.stdin(terminal.end()).stderr(terminal.end()).stdout(Stdio::null());
        let mut evict = evict.spawn().unwrap();
        terminal.until_shows("[y/N]");
        terminal.press(answer);
        assert_eq!(wait(&mut evict).code(), Some(status));
        assert_eq!(place.standings("x").len(), claims);
    }
    assert_eq!(holder.finish(), 0);
}

#[test]
fn watch_keeps_its_heading_sorts_by_the_oldest_wait_and_leaves_the_screen_as_it_was() {
    let place = Place::new();
    let holders: Vec<Held> = (0..12).map(|number| place.hold(&[&format!("lock/{number:02}")])).collect();
    let waiter = place.start_waiting(&["run", "lock/07", "--", "true"]);
    place.until_claims("lock/07", 2);
    let mut terminal = Terminal::open();
    let size = rustix::termios::Winsize { ws_row: 8, ws_col: 50, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal.keyboard, size).unwrap();
    let mut command = place.lockkeeper(["watch", "--every", "20ms"]);
    let mut watch = command.stdout(terminal.end()).spawn().unwrap();
    terminal.until_shows("more");
    terminal.seen.truncate("\u{1b}[?1049h".len());
    // A whole frame, and the start of the next.
    terminal.until_shows("\u{1b}[H\u{1b}[JNAME");
    let start = terminal.seen.find("\u{1b}[H\u{1b}[JNAME").unwrap() + 1;
    while !terminal.seen[start..].contains("\u{1b}[H\u{1b}[J") {
        terminal.read();
    }
    let seen = terminal.seen.clone();
    let frame = seen.rsplit("\u{1b}[H\u{1b}[J").nth(1).unwrap();
    let lines: Vec<&str> = frame.lines().collect();
    assert!(lines[0].starts_with("NAME") && lines.len() < 8, "the heading scrolls away: {lines:?}");
    assert!(lines[1].starts_with("lock/07"), "{lines:?}");
    assert!(lines.iter().all(|line| line.trim_end().chars().count() <= 50), "{lines:?}");
    assert!(seen.starts_with("\u{1b}[?1049h"), "{seen:?}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&watch), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(wait(&mut watch).code(), Some(130));
    terminal.until_shows("\u{1b}[?1049l");
    for holder in holders {
        assert_eq!(holder.finish(), 0);
    }
    assert_eq!(waiter.finish(), 0);
}

#[test]
fn watch_redraws() {
    let place = Place::new();
    let mut terminal = Terminal::open();
    let mut command = place.lockkeeper(["watch", "--every", "20ms"]);
    let mut watch = command.stdout(terminal.end()).spawn().unwrap();
    terminal.until_shows("\u{1b}[H\u{1b}[JNAME");
    let holder = place.hold(&["x", "--holder", "ann"]);
    terminal.until_shows("ann");
    assert_eq!(holder.finish(), 0);
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// Runs a shell line in a session of its own with a terminal, typing something into it. The tool for that comes
/// with the system's basic tools; without it there is nothing to try.
fn in_a_session(place: &Place, line: &str, typed: &str) -> Option<String> {
    let mut command = Command::new("script");
    command.args(["-qec", line, "/dev/null"]).env("LOCKKEEPER_URL", place.url());
    if Command::new("script").arg("--version").output().is_err() {
        return None;
    }
    let mut session = Held::start(command);
    session.say(typed);
    let seen = session.output();
    let (status, said) = session.end();
    assert_eq!(status, 0, "{seen}{said}");
    Some(seen)
}

#[test]
fn the_command_reads_from_the_terminal_and_the_shell_gets_it_back() {
    let place = Place::new();
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    let line = format!("{binary} run x -- sh -c 'read a; echo inner $a' && read b && echo outer $b");
    if let Some(seen) = in_a_session(&place, &line, "one\ntwo\n") {
        assert!(seen.contains("inner one") && seen.contains("outer two"), "{seen}");
    }
    place.assert_empty();
}

#[test]
fn a_command_whose_output_is_piped_gets_the_terminal_when_it_asks() {
    let place = Place::new();
    let binary = env!("CARGO_BIN_EXE_lockkeeper");
    let line = format!("{binary} run x -- sh -c 'read a; echo inner $a' | cat; read b && echo outer $b");
    if let Some(seen) = in_a_session(&place, &line, "one\ntwo\n") {
        assert!(seen.contains("inner one") && seen.contains("outer two"), "{seen}");
    }
    place.assert_empty();
}
