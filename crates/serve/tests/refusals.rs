//! What is refused, each with a documented status and code, while others are served.

mod support;

use axum::body::Body;
use axum::http::{Method, Request};
use lockkeeper_serve::{Listener, Settings, Tokens};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use support::{LIMIT, Served, tokens};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[tokio::test]
async fn bad_requests_say_what_is_wrong() {
    let served = Served::new();
    let session = served.session("30s").await;
    let with = |more: Value| {
        let mut body = json!({"session": session, "names": ["a"], "wait": 0});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (body, words) in [
        (with(json!({"mode": "sideways"})), "a mode is \"exclusive\", \"shared\" or"),
        (with(json!({"mode": {"permits": 1}})), "{\"permits\": 1, \"of\": 4}"),
        (with(json!({"mode": {"permits": 5, "of": 4}})), "take 1 to 4"),
        (with(json!({"names": []})), "give 1 to 64"),
        (with(json!({"names": vec!["x"; 65]})), "give 1 to 64"),
        (with(json!({"names": ["a", "a"]})), "twice"),
        (with(json!({"names": ["x".repeat(513)]})), "513 bytes"),
        (with(json!({"names": ["a//b"]})), "empty segment"),
        (with(json!({"names": ["a\u{0}b"]})), "control"),
        (with(json!({"wait": "soon"})), "bad duration"),
        (with(json!({"wait": "2d"})), "not possible"),
        (with(json!({"wait": 1.5})), "whole milliseconds"),
        (with(json!({"lease": 1})), "not possible"),
        (with(json!({"wiat": 1})), "unknown field"),
        (json!({"names": ["a"]}), "missing field"),
        (json!([]), "bad JSON"),
    ] {
        let refused = served.post("/v1/holds", body.clone()).await;
        assert_eq!((refused.status, refused.code()), (400, "invalid"), "{body}: {refused:?}");
        assert!(refused.text_of("detail").contains(words), "{body}: {refused:?}");
        assert_eq!(refused.headers["content-type"], "application/problem+json");
    }
    for (body, words) in [
        (json!({"ttl": "1ms"}), "100ms to 3600s"),
        (json!({"holder": "x".repeat(300)}), "256 bytes"),
        (json!({"holder": 7}), "a holder is a text"),
    ] {
        let refused = served.post("/v1/sessions", body).await;
        assert_eq!((refused.status, refused.code()), (400, "invalid"), "{refused:?}");
        assert!(refused.text_of("detail").contains(words), "{refused:?}");
    }
    assert!(served.keeper.inspect("").await.unwrap().is_empty(), "nothing is left behind");
}

#[tokio::test]
async fn wrong_bodies_paths_and_methods() {
    let served = Served::new();
    let raw = |kind: &str, body: String| {
        Request::post("/v1/sessions")
            .header("host", "localhost")
            .header("content-type", kind)
            .body(Body::from(body))
            .unwrap()
    };
    let cases = [
        (served.send(raw("text/plain", "{}".into())).await, 415, "not_json"),
        (served.send(raw("application/json", "{\"ttl\":".into())).await, 400, "invalid"),
        (served.send(raw("application/json", "x".repeat(70_000))).await, 413, "too_large"),
        (served.get("/v1/nothing").await, 404, "not_found"),
        (served.get("/v1/sessions").await, 405, "method_not_allowed"),
        (served.get("/v1/holds/h_1").await, 404, "unknown_hold"),
        (served.beat("s_1").await, 404, "unknown_session"),
        (served.get("/v1/locks?limit=0").await, 400, "invalid"),
        (served.get("/v1/locks?limit=x").await, 400, "invalid"),
        (served.get("/v1/hold").await, 400, "invalid"),
        (served.get("/v1/hold?name=a&until=1").await, 400, "invalid"),
        (served.delete("/v1/locks/a/claims/xyz").await, 400, "invalid"),
        (served.delete("/v1/locks/a").await, 400, "invalid"),
    ];
    for (refused, status, code) in cases {
        assert_eq!((refused.status, refused.code()), (status, code), "{refused:?}");
    }
    let mut long = served.request(Method::POST, "/v1/sessions", Some(&"k".repeat(129)), Some(json!({})));
    long.headers_mut().insert("host", "localhost".parse().unwrap());
    assert_eq!(served.send(long).await.status, 400);
}

#[tokio::test]
async fn another_kind_of_lock_is_a_mismatch() {
    let served = Served::new();
    let session = served.session("10s").await;
    served.hold(&session, "a").await;
    let permits = json!({"session": session, "names": ["a"], "mode": {"permits": 1, "of": 2}});
    let refused = served.post("/v1/holds", permits).await;
    assert_eq!((refused.status, refused.code()), (409, "mismatch"));
}

#[tokio::test]
async fn pages_of_other_origins_and_names_are_refused() {
    let served = Served::new();
    let with = |name: &'static str, value: &'static str| {
        let mut request = served.request(Method::GET, "/v1/locks", None, None);
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    };
    for (name, value, code) in [
        ("host", "evil.example", "bad_host"),
        ("host", "evil.example:7670", "bad_host"),
        ("origin", "https://evil.example", "bad_origin"),
        ("origin", "null", "bad_origin"),
        ("sec-fetch-site", "cross-site", "bad_origin"),
    ] {
        let refused = served.send(with(name, value)).await;
        assert_eq!((refused.status, refused.code()), (403, code), "{name}: {value}");
    }
    for (name, value) in
        [("host", "127.0.0.1:1"), ("host", "[::1]:7670"), ("origin", "http://localhost:7670")]
    {
        assert_eq!(served.send(with(name, value)).await.status, 200, "{name}: {value}");
    }
    let mut settings = Settings::default();
    settings.hosts = vec!["locks.example".into()];
    let named = Served::with(settings);
    let mut request = named.request(Method::GET, "/healthz", None, None);
    request.headers_mut().insert("host", "locks.example:443".parse().unwrap());
    assert_eq!(named.send(request).await.status, 200);
}

/// Beyond loopback without tokens, a page of another name than the server's could do everything.
#[tokio::test]
async fn an_open_server_goes_by_its_addresses_and_given_names_alone() {
    let (_directory, known, _) = tokens(&[("a", "look *")]);
    for (hosts, known, cases) in [
        (&[][..], None, [("192.0.2.7:7670", 200), ("localhost", 200), ("evil.example", 403), ("locks", 403)]),
        (
            &["locks"],
            None,
            [("192.0.2.7", 200), ("[2001:db8::1]:1", 200), ("evil.example", 403), ("LOCKS", 200)],
        ),
        (&[], Some(known), [("192.0.2.7", 200), ("localhost", 200), ("any.example", 200), ("locks", 200)]),
    ] {
        let mut settings = Settings::default();
        settings.beyond_loopback = true;
        settings.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        settings.tokens = known;
        let served = Served::with(settings);
        for (host, status) in cases {
            let mut request = served.request(Method::GET, "/healthz", None, None);
            request.headers_mut().insert("host", host.parse().unwrap());
            assert_eq!(served.send(request).await.status, status, "{host} beside {hosts:?}");
        }
    }
}

#[tokio::test]
async fn a_token_does_what_it_may_and_no_more() {
    let (directory, known, given) =
        tokens(&[("look", "look *"), ("ci", "look,hold ci/ tmp/"), ("ops", "look,hold,evict *")]);
    let mut settings = Settings::default();
    settings.tokens = Some(known);
    let served = Served::with(settings);
    assert_eq!(served.get("/v1/locks").await.code(), "no_token");
    assert_eq!(served.as_caller("lk_wrong").get("/v1/locks").await.code(), "bad_token");
    assert_eq!(served.get("/healthz").await.status, 200);
    let [look, ci, ops] = [0, 1, 2].map(|at: usize| served.as_caller(&given[at]));
    assert_eq!(look.post("/v1/sessions", json!({})).await.code(), "forbidden");
    let session = ci.session("30s").await;
    let elsewhere = ci.post("/v1/holds", json!({"session": session, "names": ["prod/a"]})).await;
    assert_eq!((elsewhere.status, elsewhere.code()), (403, "forbidden"));
    let hold = ci.hold(&session, "ci/a").await;
    // The ids of another token's session and hold are of no use.
    assert_eq!(ops.beat(&session).await.code(), "unknown_session");
    assert_eq!(ops.delete(&format!("/v1/holds/{hold}")).await.code(), "unknown_hold");
    let session = ops.session("30s").await;
    ops.hold(&session, "prod/b").await;
    let seen = |reply: &support::Reply| reply.body["locks"].as_array().unwrap().len();
    assert_eq!((seen(&look.get("/v1/locks").await), seen(&ci.get("/v1/locks").await)), (2, 1));
    // What it may not see does not fill its list.
    ops.hold(&session, "a").await;
    let listed = ci.get("/v1/locks?limit=1").await;
    assert_eq!(listed.body["locks"][0]["name"], "ci/a", "{listed:?}");
    assert_eq!(ci.get("/v1/locks/prod/b").await.code(), "forbidden");
    let claim = served.keeper.look("ci/a").await.unwrap().unwrap().claims[0].id.clone();
    let path = format!("/v1/locks/ci/a/claims/{claim}");
    assert_eq!(ci.delete(&path).await.code(), "forbidden");
    assert_eq!(ops.delete(&path).await.status, 204);
    // A token that is taken out of the file is refused soon after, without a restart.
    std::fs::write(directory.path().join("tokens"), Tokens::generate("other").unwrap().1).unwrap();
    support::until("the file is read again", async || ops.get("/v1/locks").await.code() == "bad_token").await;
}

/// An editor empties a file before it writes the new text: nobody is to be refused meanwhile.
#[tokio::test]
async fn a_token_file_that_is_empty_or_gone_keeps_the_tokens() {
    let (directory, known, given) = tokens(&[("a", "look *"), ("b", "look *")]);
    let path = directory.path().join("tokens");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut settings = Settings::default();
    settings.tokens = Some(known);
    let served = Served::with(settings);
    let [a, b] = [0, 1].map(|at: usize| served.as_caller(&given[at]));
    let looks_for_more_than_a_second = async || {
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(2500) {
            assert_eq!(a.get("/v1/locks").await.status, 200);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    std::fs::write(&path, "").unwrap();
    looks_for_more_than_a_second().await;
    std::fs::remove_file(&path).unwrap();
    looks_for_more_than_a_second().await;
    // What is written then counts.
    std::fs::write(&path, text.lines().next().unwrap()).unwrap();
    support::until("the other is taken out", async || b.get("/v1/locks").await.code() == "bad_token").await;
    assert_eq!(a.get("/v1/locks").await.status, 200);
}

#[test]
fn a_token_file_that_is_wrong_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let line = Tokens::generate("a").unwrap().1;
    for (text, words) in [
        ("", "has no token"),
        ("a sha256:12 look *", "line 1"),
        ("# x\na b", "line 2"),
        (&line.replace("look", "see"), "unknown right 'see'"),
        (&line.replace(" *", ""), "no prefix"),
        (&format!("{line}\n{line}"), "twice"),
    ] {
        std::fs::write(&path, text).unwrap();
        let error = Tokens::from_file(&path).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[tokio::test]
async fn too_many_are_refused_and_the_others_are_served() {
    let mut settings = Settings::default();
    (settings.limits.sessions, settings.limits.sessions_per_token) = (20, 10);
    (settings.limits.holds, settings.limits.waiters) = (3, 1);
    let (_directory, known, given) = tokens(&[("a", "look,hold *"), ("b", "look,hold *")]);
    settings.tokens = Some(known);
    let served = Served::with(settings);
    let (greedy, other) = (served.as_caller(&given[0]), served.as_caller(&given[1]));
    let mut made = Vec::new();
    for _ in 0..10 {
        made.push(greedy.session("30s").await);
    }
    for _ in 0..1000 {
        let refused = greedy.post("/v1/sessions", json!({})).await;
        assert_eq!((refused.status, refused.code()), (429, "too_many_sessions"));
    }
    let session = other.session("30s").await;
    other.hold(&session, "a").await;
    greedy.hold(&made[0], "b").await;
    let waiting = greedy.post("/v1/holds", json!({"session": made[0], "names": ["a"]}));
    let beside = async {
        served.until_waiting("a", 1).await;
        greedy.post("/v1/holds", json!({"session": made[0], "names": ["c"], "wait": 0})).await
    };
    let refused = tokio::select! {
        reply = waiting => panic!("{reply:?}"),
        refused = beside => refused,
    };
    assert_eq!((refused.status, refused.code()), (429, "too_many_holds"));
    greedy.delete(&format!("/v1/sessions/{}", made[0])).await;
    greedy.session("30s").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_sessions_are_refused_and_another_token_is_served_meanwhile() {
    const ASKED: usize = 100_000;
    const AT_A_TIME: usize = 64;
    let (_directory, known, given) = tokens(&[("greedy", "hold *"), ("other", "hold *")]);
    let mut settings = Settings::default();
    settings.tokens = Some(known);
    let limit = settings.limits.sessions_per_token;
    let served = Served::with(settings);
    let other = served.as_caller(&given[1]);
    let left = Arc::new(AtomicUsize::new(ASKED));
    let asking: Vec<_> = (0..AT_A_TIME)
        .map(|_| {
            let (greedy, left) = (served.as_caller(&given[0]), Arc::clone(&left));
            tokio::spawn(async move {
                let mut made = 0;
                while left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                    let reply = greedy.post("/v1/sessions", json!({"ttl": "1h"})).await;
                    match (reply.status, reply.code()) {
                        (201, _) => made += 1,
                        refused => assert_eq!(refused, (429, "too_many_sessions")),
                    }
                    tokio::task::yield_now().await;
                }
                made
            })
        })
        .collect();
    let is_served = async || {
        let session = other.session("1h").await;
        other.hold(&session, "a").await;
        assert_eq!(other.delete(&format!("/v1/sessions/{session}")).await.status, 204);
    };
    let mut meanwhile = 0;
    while left.load(SeqCst) > 0 {
        is_served().await;
        meanwhile += 1;
    }
    let mut made = 0;
    for asking in asking {
        made += asking.await.unwrap();
    }
    is_served().await;
    assert_eq!(made, limit);
    assert!(meanwhile > 10, "the other was served {meanwhile} times");
}

#[tokio::test]
async fn waits_and_streams_beyond_the_limit_are_refused() {
    let mut settings = Settings::default();
    (settings.limits.waiters, settings.limits.streams) = (1, 1);
    let served = Served::with(settings);
    let session = served.session("30s").await;
    let hold = served.hold(&session, "a").await;
    let wait = json!({"session": session, "names": ["a"]});
    let beside = async {
        served.until_waiting("a", 1).await;
        served.post("/v1/holds", wait.clone()).await
    };
    let refused = tokio::select! {
        reply = served.post("/v1/holds", wait.clone()) => panic!("{reply:?}"),
        refused = beside => refused,
    };
    assert_eq!((refused.status, refused.code()), (429, "too_many_waiters"));
    assert_eq!(refused.headers["retry-after"], "1");
    let open = served.stream("/v1/events").await;
    for path in ["/v1/events".to_owned(), format!("/v1/holds/{hold}/events")] {
        let refused = served.get(&path).await;
        assert_eq!((refused.status, refused.code()), (429, "too_many_streams"), "{path}");
    }
    drop(open);
    drop(served.stream("/v1/events").await);
}

#[tokio::test]
async fn one_token_leaves_event_streams_to_the_others() {
    let (_directory, known, given) = tokens(&[("a", "look *"), ("b", "look *")]);
    let mut settings = Settings::default();
    settings.tokens = Some(known);
    let limits = settings.limits.clone();
    assert!(2 * limits.streams_per_token <= limits.streams, "{limits:?}");
    let served = Served::with(settings);
    let (greedy, other) = (served.as_caller(&given[0]), served.as_caller(&given[1]));
    let mut open = Vec::new();
    for _ in 0..limits.streams_per_token {
        open.push(greedy.stream("/v1/events").await);
    }
    // One that is not refused goes on.
    let refused = tokio::time::timeout(LIMIT, greedy.get("/v1/events")).await.expect("it is refused");
    assert_eq!((refused.status, refused.code()), (429, "too_many_streams"));
    assert!(refused.text_of("detail").contains("this token has"), "{refused:?}");
    drop(other.stream("/v1/events").await);
    open.pop();
    drop(greedy.stream("/v1/events").await);
}

async fn listening(mut settings: Settings) -> (Served, String) {
    settings.limits.request_time = Duration::from_millis(300);
    let served = Served::with(settings);
    let listener = Listener::bind("127.0.0.1:0", None).await.unwrap();
    let address = listener.to_string().replace("http://", "");
    let server = served.server.clone();
    tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
    (served, address)
}

async fn open(address: &str, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Reads until this text is there.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut read = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&read).contains(text) {
            let mut more = [0; 4096];
            let length = stream.read(&mut more).await.unwrap();
            assert!(length > 0, "closed after {:?}", String::from_utf8_lossy(&read));
            read.extend_from_slice(&more[..length]);
        }
    };
    tokio::time::timeout(LIMIT, reading).await.unwrap();
    String::from_utf8(read).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_huge_requests_hold_nobody_up() {
    let (_served, address) = listening(Settings::default()).await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        slow.push(open(&address, "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-").await);
    }
    let body = "POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{";
    let mut half = open(&address, body).await;
    let huge = body.replace("10\r\n", "99999999999\r\n");
    let mut huge = open(&address, &(huge + &"x".repeat(70_000))).await;
    assert!(read_until(&mut huge, "too_large").await.starts_with("HTTP/1.1 413"));
    let mut quick = open(&address, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(read_until(&mut quick, "ok\n").await.starts_with("HTTP/1.1 200"));
    assert!(read_until(&mut half, "too_slow").await.starts_with("HTTP/1.1 408"));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_say_nothing_keep_nobody_out() {
    let mut settings = Settings::default();
    settings.limits.connections = 8;
    let (_served, address) = listening(settings).await;
    let mut silent = Vec::new();
    for at in 0..8 {
        silent.push(open(&address, if at % 2 == 0 { "" } else { "PRI * HT" }).await);
    }
    let mut quick = open(&address, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(read_until(&mut quick, "ok\n").await.starts_with("HTTP/1.1 200"));
}

/// The system tells of each connection which timer runs for it: 02 is that which asks a silent peer whether it is still there.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_gone_without_a_word_is_noticed() {
    let (served, address) = listening(Settings::default()).await;
    let session = served.session("30s").await;
    served.hold(&session, "a").await;
    let waiting = open(&address, "GET /v1/hold?name=a HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    served.until_waiting("a", 1).await;
    let port = |address: std::net::SocketAddr| format!(":{:04X}", address.port());
    let (ours, theirs) = (port(waiting.local_addr().unwrap()), port(waiting.peer_addr().unwrap()));
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let of_server = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&theirs))
            && words.next().is_some_and(|remote| remote.ends_with(&ours))
    };
    let line = table.lines().find(of_server).unwrap_or_else(|| panic!("no connection in {table}"));
    let timer = line.split_whitespace().nth(5).unwrap();
    assert!(timer.starts_with("02:"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_holds_as_long_as_it_is_open() {
    let (served, address) = listening(Settings::default()).await;
    let request = "GET /v1/hold?name=demo%2Fa&holder=shell HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut first = open(&address, request).await;
    let reply = read_until(&mut first, "\r\n\r\n").await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let token = served.keeper.look("demo/a").await.unwrap().unwrap().claims[0].token.unwrap();
    if !reply.contains(&format!("{token}\n")) {
        read_until(&mut first, &format!("{token}\n")).await;
    }
    let mut second = open(&address, request).await;
    served.until_waiting("demo/a", 1).await;
    let third = open(&address, request).await;
    served.until_waiting("demo/a", 2).await;
    drop(third);
    served.until_waiting("demo/a", 1).await;
    drop(first);
    read_until(&mut second, "HTTP/1.1 200").await;
    drop(second);
    served.until_free("demo/a").await;
}
