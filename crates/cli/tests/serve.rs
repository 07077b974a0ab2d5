//! `lockkeeper serve` as a program: the story of curl, the command line through it, and what it refuses to start with.

mod support;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{Held, LIMIT, Place};

struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(place: &Place, more: &[&str]) -> Self {
        Self::with(&mut place.lockkeeper(["serve"].iter().chain(more)))
    }

    /// On a free port, unless the command names another place.
    fn with(command: &mut Command) -> Self {
        let mut child =
            command.env("LOCKKEEPER_LISTEN", "127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
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

    fn term(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
    }

    fn end(mut self) -> i32 {
        self.term();
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
    for (arguments, cannot) in [
        (&["acquire", "x", "--for", "1m"][..], "cannot detach a hold"),
        (&["run", "--once-per", "5m", "x"], "cannot keep a hold beyond its release"),
    ] {
        let end: &[&str] = if arguments[0] == "run" { &["--", "touch", "ran"] } else { &[] };
        let through = [arguments, &["--server", &server.url], end].concat();
        let (status, error) = elsewhere.status(&through);
        assert_eq!(status, 64, "{error}");
        assert!(error.contains(cannot) && error.contains("lists all that can"), "{error}");
    }
    assert!(!elsewhere.path("ran").exists(), "a turn that cannot be kept is none");
    drop(held);
    assert_eq!(server.end(), 0);
    let (status, error) = elsewhere.status(["ls", "--server", "redis://host"]);
    assert_eq!((status, error.contains("http://")), (64, true), "{error}");
}

#[test]
fn a_token_that_may_only_hold_is_enough_to_run() {
    let place = Place::new();
    let new = String::from_utf8(place.output(["serve", "--new-token", "ci"]).stdout).unwrap();
    let new = new.replace('\n', ";\n");
    let line = between(&new, "file: ", ";").replace("look,hold *", "hold builds/");
    std::fs::write(place.path("tokens"), line).unwrap();
    let server = Server::start(&place, &["--tokens", "tokens"]);
    let url = server.url.replace("http://", &format!("http://{}@", between(&new, "token: ", ";")));
    let elsewhere = Place::new();
    let held = elsewhere.hold(&["builds/a", "--server", &url]);
    let (status, error) = elsewhere.status(["run", "--no-wait", "builds/a", "--server", &url, "--", "true"]);
    assert_eq!(status, 75, "{error}");
    drop(held);
    let run = |name: &str| elsewhere.status(["run", name, "--server", &url, "--", "true"]);
    // The one before may still be leaving.
    let (status, error) = run("builds/a");
    assert_eq!(status, 0, "{error}");
    let (status, error) = run("prod/a");
    assert!(status != 0 && error.contains("prefixes"), "{status}: {error}");
    let (status, error) = elsewhere.status(["ls", "--server", &url]);
    assert!(status != 0 && error.contains("the right 'look'"), "{status}: {error}");
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

/// What is between two texts, of the first line that has both.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let found = text.lines().find_map(|line| line.split_once(before)?.1.split_once(after));
    found.unwrap_or_else(|| panic!("no {before}…{after} in {text}")).0
}

/// The words of a list in YAML, such as `[serve, --drain]`.
fn words(list: &str) -> Vec<&str> {
    list.split(',').map(|word| word.trim().trim_matches('"')).collect()
}

#[test]
fn the_files_for_systemd_and_kubernetes_start_a_server() {
    let file = |name: &str| {
        std::fs::read_to_string(format!("{}/../../packaging/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
            + "\n"
    };
    let unit = file("lockkeeper.service") + "\n";
    let unit: String = unit.lines().map(|line| format!("{line};\n")).collect();
    let place = Place::new();
    // The state directory is the unit's own, so the engine that it names must be in it.
    let engine = between(&unit, "Environment=LOCKKEEPER_URL=", ";");
    assert!(
        engine.starts_with("file:%S/lockkeeper/") && unit.contains("StateDirectory=lockkeeper;"),
        "{engine}"
    );
    let engine = engine.replace("%S/lockkeeper", &place.dir.path().display().to_string());
    let command: Vec<&str> =
        between(&unit, "ExecStart=/usr/bin/lockkeeper ", ";").split_whitespace().collect();
    let server = Server::with(place.lockkeeper(command).env("LOCKKEEPER_URL", engine));
    assert_eq!(server.end(), 0);

    let sidecar = file("kubernetes-sidecar.yaml");
    let server = Server::with(&mut place.lockkeeper(words(between(&sidecar, "args: [", "]"))));
    let probe = words(between(&sidecar, "exec: {command: [", "]"));
    let url = between(&sidecar, "LOCKKEEPER_SERVER, value: \"", "\"");
    assert_eq!((probe[0], probe.last()), ("lockkeeper", Some(&url)));
    let help = String::from_utf8(place.output(["serve", "--help"]).stdout).unwrap();
    assert!(
        help.contains(&format!("default: 127.0.0.1:{}", between(&sidecar, "containerPort: ", "}"))),
        "{help}"
    );
    assert!(url.ends_with(":7670"));
    let words: Vec<&str> =
        probe[1..].iter().map(|word| if *word == url { &*server.url } else { word }).collect();
    assert_eq!(place.status(&words).0, 0);
    let port = server.url.rsplit(':').next().unwrap();
    let probes: Vec<String> = sidecar
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- exec "))
        .map(|probe| format!("exec {}", probe.replace("/7670 ", &format!("/{port} "))))
        .collect();
    let answers = |probe: &str| Command::new("bash").args(["-c", probe]).status().unwrap().success();
    let [ready, alive] = &probes[..] else { panic!("{probes:?}") };
    assert!(ready.contains("/readyz") && answers(ready) && alive.contains("/healthz") && answers(alive));
    assert!(!answers(&alive.replace("/healthz", "/nothing")), "a probe fails if the reply is no success");
    assert_eq!(server.end(), 0);
}

/// The reply to a request, as text.
fn reply(mut stream: impl Read + Write, request: &str) -> String {
    let (head, body) = request.split_once('|').unwrap_or((request, ""));
    let kind = "Host: localhost\r\nConnection: close\r\nContent-Type: application/json";
    write!(stream, "{head} HTTP/1.1\r\n{kind}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// What a reply has under this name.
fn field(reply: &str, name: &str) -> String {
    let body: Value = serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap();
    body[name].as_str().unwrap_or_else(|| panic!("no {name} in {reply}")).to_owned()
}

#[test]
fn a_unix_socket_is_its_owners_alone_and_is_gone_with_the_server() {
    let place = Place::new();
    let path = place.path("socket");
    let listen = format!("unix:{}", path.display());
    // A file that a killed server has left is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let server = Server::with(&mut place.lockkeeper(["serve", "--listen", &listen]));
    assert_eq!(server.url, listen);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let shown = reply(UnixStream::connect(&path).unwrap(), "GET /v1/locks");
    assert!(
        shown.starts_with("HTTP/1.1 200")
            && shown.ends_with("{\"locks\":[],\"more\":false,\"deadlocks\":[]}"),
        "{shown}"
    );
    assert_eq!(place.status(["serve", "--listen", &listen]).0, 64, "a socket in use is not taken");
    assert_eq!(server.end(), 0);
    assert!(!path.exists());
}

#[test]
fn draining_waits_for_what_is_held() {
    let place = Place::new();
    let mut server = Server::start(&place, &["--drain"]);
    let ask =
        |request: &str| reply(TcpStream::connect(server.url.trim_start_matches("http://")).unwrap(), request);
    let session = field(&ask("POST /v1/sessions|{\"ttl\": \"30s\"}"), "session");
    let hold = format!("POST /v1/holds|{{\"session\": \"{session}\", \"names\": [\"a\"]}}");
    let hold = field(&ask(&hold), "hold");
    assert!(ask("GET /readyz").starts_with("HTTP/1.1 200"));
    server.term();
    // Each request comes over a connection that is opened after the signal.
    support::until("the end has begun", || ask("GET /readyz").starts_with("HTTP/1.1 503"));
    for request in [
        "POST /v1/sessions|{}".to_owned(),
        format!("POST /v1/holds|{{\"session\": \"{session}\", \"names\": [\"b\"]}}"),
    ] {
        let refused = ask(&request);
        assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("\r\nretry-after: "), "{refused}");
    }
    let beat = ask(&format!("POST /v1/sessions/{session}/heartbeat"));
    assert!(beat.starts_with("HTTP/1.1 200"), "{beat}");
    assert_eq!(field(&ask(&format!("GET /v1/holds/{hold}")), "state"), "held");
    assert!(server.child.try_wait().unwrap().is_none());
    assert!(ask(&format!("DELETE /v1/holds/{hold}")).starts_with("HTTP/1.1 204"));
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_second_signal_ends_the_drain_when_the_given_deadlines_are_over() {
    let place = Place::new();
    let mut server = Server::start(&place, &["--drain", "--ttl", "2s"]);
    let address = server.url.trim_start_matches("http://").to_owned();
    let ask = |request: &str| reply(TcpStream::connect(&address).unwrap(), request);
    let session = field(&ask("POST /v1/sessions|{\"ttl\": \"1h\"}"), "session");
    let hold = format!("POST /v1/holds|{{\"session\": \"{session}\", \"names\": [\"a\"]}}");
    let hold = field(&ask(&hold), "hold");
    server.term();
    support::until("the end has begun", || ask("GET /readyz").starts_with("HTTP/1.1 503"));
    // The drain alone would keep it for an hour.
    let sent = Instant::now();
    let shown = ask(&format!("GET /v1/holds/{hold}"));
    let shown: Value = serde_json::from_str(shown.split_once("\r\n\r\n").unwrap().1).unwrap();
    let trusted = Duration::from_millis(shown["valid_for_ms"].as_u64().unwrap());
    server.term();
    assert_eq!(support::wait(&mut server.child).code(), Some(0));
    assert!(sent.elapsed() >= trusted, "ended after {:?}, trusted for {trusted:?}", sent.elapsed());
    place.assert_empty();
}

#[test]
fn a_server_that_is_open_to_the_network_says_so_and_goes_by_no_other_name() {
    let place = Place::new();
    let mut command = place.lockkeeper(["serve", "--listen", "0.0.0.0:0", "--insecure"]);
    let mut server = Server::with(command.stderr(Stdio::piped()));
    let port = server.url.rsplit_once(':').unwrap().1.to_owned();
    let stranger = "GET /v1/locks HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.write_all(stranger.as_bytes()).unwrap();
    let mut refused = String::new();
    stream.read_to_string(&mut refused).unwrap();
    assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("bad_host"), "{refused}");
    let mut said = server.child.stderr.take().unwrap();
    assert_eq!(server.end(), 0);
    let mut warning = String::new();
    said.read_to_string(&mut warning).unwrap();
    assert_eq!(warning.lines().count(), 1, "{warning}");
    assert!(warning.contains("--insecure: 0.0.0.0:0 can be reached by other machines"), "{warning}");
}

#[test]
fn watch_and_evict_work_through_a_server() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let elsewhere = Place::new();
    let words = ["watch", "job", "--every", "20ms", "--server", &server.url];
    let mut watch = Held::start(elsewhere.lockkeeper(words));
    let held = elsewhere.hold(&["job/1", "--server", &server.url, "--holder", "ann"]);
    let line = watch.line();
    assert!(line.contains(" holds job/1 who=\"ann\""), "{line}");
    let evict = ["evict", "job/1", "--yes", "--server", &server.url];
    assert_eq!(elsewhere.status(evict).0, 0);
    let line = watch.line();
    assert!(line.contains(" job/1 who=\"ann\"") && !line.contains(" holds "), "{line}");
    assert_eq!(elsewhere.status(evict).0, 1, "nobody is left to evict");
    place.assert_empty();
    drop(held);
}

#[test]
fn the_log_of_requests_has_neither_tokens_nor_names() {
    let place = Place::new();
    let new = String::from_utf8(place.output(["serve", "--new-token", "ci"]).stdout).unwrap();
    let line = between(&(new.clone() + ";"), "file: ", "*").to_owned() + "*\n";
    std::fs::write(place.path("tokens"), line).unwrap();
    let token = between(&new.replace('\n', ";\n"), "token: ", ";").to_owned();
    let mut command = place.lockkeeper(["serve", "--tokens", "tokens", "--verbose"]);
    // The library's own events name the locks, in every program.
    command.env("RUST_LOG", "debug,lockkeeper_core=info").stderr(Stdio::piped());
    let mut server = Server::with(&mut command);
    let said = server.child.stderr.take().unwrap();
    let reading = std::thread::spawn(move || std::io::read_to_string(said).unwrap());
    let address = server.url.trim_start_matches("http://").to_owned();
    let ask = |request: &str, body: &str| {
        let head = "Host: localhost\r\nConnection: close\r\nContent-Type: application/json";
        let head = format!("{head}\r\nAuthorization: Bearer {token}\r\nIdempotency-Key: the-key");
        let mut stream = TcpStream::connect(&address).unwrap();
        let length = body.len();
        write!(stream, "{request} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let session = field(&ask("POST /v1/sessions", "{\"ttl\": \"30s\", \"holder\": \"somebody\"}"), "session");
    let hold = format!("{{\"session\": \"{session}\", \"names\": [\"payroll/of-ann\"]}}");
    let hold = field(&ask("POST /v1/holds", &hold), "hold");
    let released = ask(&format!("DELETE /v1/holds/{hold}"), "");
    assert!(released.starts_with("HTTP/1.1 204"), "{released}");
    assert!(ask("GET /v1/locks?prefix=payroll", "").starts_with("HTTP/1.1 200"));
    assert_eq!(server.end(), 0);
    let log = reading.join().unwrap();
    assert!(log.contains("/v1/holds/{hold}") && log.contains("status=204"), "requests are logged: {log}");
    for secret in [&*token, "payroll", "somebody", "the-key", &*session, &*hold] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[test]
fn beyond_this_machine_it_asks_for_tokens_over_tls() {
    let place = Place::new();
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    let made = Command::new("openssl")
        .args(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
                .split(' '),
        )
        .args(["-addext", names, "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(place.dir.path())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let new = String::from_utf8(place.output(["serve", "--new-token", "ci"]).stdout).unwrap();
    std::fs::write(place.path("tokens"), between(&(new.clone() + ";"), "file: ", "*").to_owned() + "*\n")
        .unwrap();
    std::fs::write(place.path("token"), between(&new.replace('\n', ";\n"), "token: ", ";")).unwrap();
    let files = ["--tokens", "tokens", "--tls-cert", "cert.pem", "--tls-key", "key.pem"];
    let command = ["serve", "--listen", "0.0.0.0:0"].iter().chain(&files).copied();
    let server = Server::with(&mut place.lockkeeper(command.clone()));
    let port = server.url.rsplit_once(':').unwrap().1;
    let url = format!("https://localhost:{port}?ca=cert.pem");
    let (status, error) = place.status(["ls", "--server", &url]);
    assert!(status != 0 && error.contains("token"), "{status}: {error}");
    let url = format!("{url}&token_file=token");
    assert_eq!(place.status(["run", "a", "--server", &url, "--", "true"]), (0, String::new()));
    // Without one of them it does not start.
    let without: Vec<&str> = command.filter(|word| !word.contains("token")).collect();
    let (status, error) = place.status(&without);
    assert_eq!((status, error.contains("it needs tokens")), (64, true), "{error}");
    assert_eq!(server.end(), 0);
}
