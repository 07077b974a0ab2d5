//! `lockkeeper serve` as a program: the story of curl, the command line through it, and what it refuses to start with.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use support::{LIMIT, Place};

struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(place: &Place, more: &[&str]) -> Self {
        let mut command = place.lockkeeper(["serve", "--listen", "127.0.0.1:0"].iter().chain(more));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self { child, url }
    }

    fn send(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    fn end(mut self) -> i32 {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_connection_holds_and_a_command_waits_behind_it() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let stream =
        server.send("GET /v1/hold?name=demo HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl\r\n\r\n");
    let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
    assert_eq!(place.status(["run", "--no-wait", "demo", "--", "true"]).0, 75);
    let shown = String::from_utf8(place.output(["ls"]).stdout).unwrap();
    assert!(shown.contains("curl (127.0.0.1:"), "{shown}");
    let mut waiting = place.start_waiting(&["run", "demo", "--", "sh", "-c", support::HOLD]);
    drop(lines);
    drop(stream);
    assert_eq!(waiting.line(), "holding");
}

#[test]
fn the_commands_work_through_a_server() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let elsewhere = Place::new();
    let held = elsewhere.hold(&["orders/42", "--server", &server.url, "--holder", "through"]);
    for arguments in [&["ls"][..], &["show", "orders/42"]] {
        let direct = String::from_utf8(place.output(arguments).stdout).unwrap();
        let mut all = arguments.to_vec();
        all.extend(["--server", &server.url]);
        let through = String::from_utf8(elsewhere.output(&all).stdout).unwrap();
        assert!(direct.contains("through") && through.contains("through"), "{direct}{through}");
    }
    let busy = elsewhere.status(["run", "--no-wait", "orders/42", "--server", &server.url, "--", "true"]);
    assert_eq!(busy.0, 75, "{}", busy.1);
    let (status, error) = elsewhere.status(["acquire", "x", "--for", "1m", "--server", &server.url]);
    assert_eq!(status, 64);
    assert!(error.contains("cannot detach a hold"), "{error}");
    drop(held);
    assert_eq!(server.end(), 0);
    let (status, error) = elsewhere.status(["ls", "--server", "redis://host"]);
    assert_eq!((status, error.contains("http://")), (64, true), "{error}");
}

#[test]
fn the_end_releases_what_is_held() {
    let place = Place::new();
    let server = Server::start(&place, &["--engine", &place.url(), "--ttl", "1h"]);
    let mut stream = server.send("GET /v1/hold?name=a HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.read_exact(&mut [0; 15]).unwrap();
    assert_eq!(server.end(), 0);
    assert_eq!(
        place.status(["run", "--no-wait", "a", "--", "true"]).0,
        0,
        "it is free, an hour before its TTL is over"
    );
}

#[test]
fn it_does_not_start_open_to_the_network_or_with_bad_files() {
    let place = Place::new();
    std::fs::write(place.path("tokens"), "ci sha256:12 look *").unwrap();
    let tokens = place.path("tokens").display().to_string();
    for (arguments, words) in [
        (&["--listen", "0.0.0.0:0"][..], "--tokens, --tls-cert and --tls-key"),
        (&["--listen", "nowhere:x"], "cannot listen"),
        (&["--listen", "127.0.0.1:0", "--tokens", &tokens], "bad hash of 'ci'"),
        (&["--listen", "127.0.0.1:0", "--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "cannot read"),
        (&["--new-token", "a b"], "bad name"),
    ] {
        let (status, error) = place.status(["serve"].iter().chain(arguments));
        assert_eq!((status, error.contains(words)), (64, true), "{error}");
    }
}

#[test]
fn the_files_for_systemd_and_kubernetes_name_what_there_is() {
    let help = String::from_utf8(Place::new().output(["serve", "--help"]).stdout).unwrap();
    let file = |name: &str| {
        std::fs::read_to_string(format!("{}/../../packaging/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    assert!(file("lockkeeper.service").contains("ExecStart=/usr/bin/lockkeeper serve\n"));
    let sidecar = file("kubernetes-sidecar.yaml");
    assert!(sidecar.contains("args: [serve, --drain]") && help.contains("--drain"));
    assert!(sidecar.contains("containerPort: 7670") && help.contains("127.0.0.1:7670"));
}
