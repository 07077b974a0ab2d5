//! What those who look are shown: events, history, deadlocks, times since the grant, metrics.

mod support;

use axum::http::Method;
use lockkeeper_conformance::faulty::Faulty;
use lockkeeper_core::engine::Memory;
use lockkeeper_serve::{Settings, Tokens, openapi, prometheus};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::{Served, Stream, tokens, until};

/// The data of the event whose name has just come.
async fn change(events: &mut Stream) -> Value {
    events.until("data: ").await;
    serde_json::from_str(&events.until("\n").await).unwrap()
}

#[tokio::test]
async fn the_events_of_a_hold_are_what_becomes_of_it() {
    let engine = Faulty::wrap(Memory::engine());
    let served = Served::over(engine.clone(), Settings::default());
    let session = served.session("60s").await;
    let hold = served.hold(&session, "a").await;
    let mut events = served.stream(&format!("/v1/holds/{hold}/events")).await;
    events.until("event: held\n").await;
    let first = change(&mut events).await;
    engine.cut(true);
    let between = events.until("event: uncertain\n").await;
    assert!(!between.contains("event: lost"), "{between}");
    let uncertain = change(&mut events).await;
    engine.cut(false);
    events.until("event: held\n").await;
    let again = change(&mut events).await;
    // Each has a deadline, which begins where the wait of the stream ends.
    let ttl = served.keeper.ttl().as_millis() as u64;
    for (held, state) in [(&first, "held"), (&uncertain, "uncertain"), (&again, "held")] {
        assert_eq!(held["state"], state);
        let valid_for = held["valid_for_ms"].as_u64().unwrap();
        assert!((1..ttl).contains(&valid_for), "{held}");
    }
    let waited = [first, uncertain, again].map(|held| held["waited_ms"].as_u64().unwrap());
    assert!(waited.is_sorted() && waited[1] > 0, "{waited:?}");
    let claim = served.keeper.look("a").await.unwrap().unwrap().claims[0].id.clone();
    assert_eq!(served.delete(&format!("/v1/locks/a/claims/{claim}")).await.status, 204);
    events.until("event: lost\n").await;
    let lost = change(&mut events).await;
    assert_eq!((&lost["reason"], &lost["valid_for_ms"]), (&json!("gone"), &json!(0)), "{lost}");
    assert_eq!(events.rest().await.trim(), "", "it is the last event");
    let document: Value = serde_json::from_str(&openapi()).unwrap();
    let described = &document["components"]["schemas"]["Change"]["properties"];
    assert!(described["valid_for_ms"].is_object() && described["waited_ms"].is_object(), "{described}");

    let hold = served.hold(&session, "b").await;
    let mut events = served.stream(&format!("/v1/holds/{hold}/events")).await;
    events.until("event: held\n").await;
    assert_eq!(served.delete(&format!("/v1/holds/{hold}")).await.status, 204);
    events.until("event: released\n").await;
    events.rest().await;
}

#[tokio::test]
async fn a_list_that_is_cut_says_so() {
    let served = Served::new();
    let session = served.session("60s").await;
    for hold in 0..16 {
        let names: Vec<String> = (0..63).map(|at| format!("{hold}/{at}")).collect();
        let held = served.post("/v1/holds", json!({"session": session, "names": names})).await;
        assert_eq!(held.status, 201, "{held:?}");
    }
    for (query, count, more) in [
        ("", 1000, true),
        ("?limit=1007", 1007, true),
        ("?limit=1008", 1008, false),
        ("?limit=63&prefix=7/", 63, false),
        ("?limit=62&prefix=7/", 62, true),
    ] {
        let listed = served.get(&format!("/v1/locks{query}")).await;
        let found = listed.body["locks"].as_array().unwrap().len();
        assert_eq!((found, listed.body["more"].as_bool()), (count, Some(more)), "{query}");
    }
    let document: Value = serde_json::from_str(&openapi()).unwrap();
    let required = &document["components"]["schemas"]["Locks"]["required"];
    assert!(required.as_array().unwrap().contains(&json!("more")), "{required}");
}

/// Each list walks through the locks of some engines, so neither the traffic nor the number of those who look makes more of them.
#[tokio::test]
async fn one_list_serves_all_who_look() {
    let engine = Faulty::wrap(Memory::engine());
    let served = Served::over(engine.clone(), Settings::default());
    let session = served.session("60s").await;
    assert_eq!(engine.inspections(), 0, "nobody looks");
    let began = Instant::now();
    let mut all = served.stream("/v1/events").await;
    let others = [served.stream("/v1/events").await, served.stream("/v1/events?prefix=a").await];
    let mut holds = 0;
    while began.elapsed() < Duration::from_secs(2) {
        let hold = served.hold(&session, "a/b").await;
        for path in ["/v1/locks?recent=true", "/v1/locks?recent=true&prefix=a/&limit=1"] {
            assert_eq!(served.get(path).await.status, 200);
        }
        assert_eq!(served.delete(&format!("/v1/holds/{hold}")).await.status, 204);
        holds += 1;
        // However short it was, nobody has missed it.
        let told = all.until("event: left\n").await;
        assert_eq!(told.matches("event: holds\n").count(), 1, "{told}");
    }
    let (lists, most) = (engine.inspections(), began.elapsed().as_millis() as usize / 500 + 1);
    assert!(holds > 20 && lists <= most && lists > 1, "{lists} lists for {holds} holds, {most} at most");
    // Who asks for no recent list gets the present one.
    let hold = served.hold(&session, "a/c").await;
    assert_eq!(served.get("/v1/locks").await.body["locks"].as_array().unwrap().len(), 1);
    assert_eq!(served.delete(&format!("/v1/holds/{hold}")).await.status, 204);
    assert_eq!(served.get("/v1/locks").await.body["locks"].as_array().unwrap().len(), 0);
    drop((all, others));
    // One may be under way.
    let before = engine.inspections();
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(engine.inspections() <= before + 1, "nobody looks any more");
}

#[tokio::test]
async fn long_texts_are_compressed_for_those_who_take_it_and_streams_are_not() {
    let served = Served::new();
    let session = served.session("60s").await;
    let names: Vec<String> = (0..60).map(|at| format!("locks/of/some/length/{at}")).collect();
    let held = served.post("/v1/holds", json!({"session": session, "names": names})).await;
    assert_eq!(held.status, 201, "{held:?}");
    let compressed = |path: &str| {
        let mut request = served.request(Method::GET, path, None, None);
        request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
        request
    };
    for path in ["/v1/locks", "/openapi.json", "/", "/page/app.js"] {
        let (plain, short) = (served.get(path).await, served.send(compressed(path)).await);
        assert_eq!((plain.status, plain.headers.get("content-encoding")), (200, None), "{path}");
        assert_eq!(
            (short.status, &short.headers["content-encoding"]),
            (200, &"gzip".parse().unwrap()),
            "{path}"
        );
        assert_eq!(short.headers["content-type"], plain.headers["content-type"], "{path}");
        assert!(
            2 * short.length < plain.length,
            "{path}: {} bytes, {} compressed",
            plain.length,
            short.length
        );
    }
    for path in ["/v1/hold?name=a", "/v1/events"] {
        let stream = served.open(compressed(path)).await;
        assert_eq!(stream.headers.get("content-encoding"), None, "{path}");
    }
    assert_eq!(served.post("/v1/locks", json!({})).await.code(), "method_not_allowed");
}

#[tokio::test]
async fn events_are_of_the_prefix_and_of_what_the_token_may_see() {
    let (_directory, known, given) = tokens(&[("ops", "look,hold *"), ("ci", "look ci/")]);
    let mut settings = Settings::default();
    settings.tokens = Some(known);
    let served = Served::with(settings);
    let (ops, ci) = (served.as_caller(&given[0]), served.as_caller(&given[1]));
    let mut all = ops.stream("/v1/events").await;
    let mut of_token = ci.stream("/v1/events").await;
    let mut of_prefix = ops.stream("/v1/events?prefix=ci/").await;
    let session = ops.session("60s").await;
    ops.hold(&session, "prod/b").await;
    all.until("prod/b").await;
    let hold = ops.hold(&session, "ci/a").await;
    all.until("ci/a").await;
    assert_eq!(ops.delete(&format!("/v1/holds/{hold}")).await.status, 204);
    for events in [&mut of_token, &mut of_prefix] {
        let before = events.until("event: left\n").await;
        assert!(before.contains("event: holds\n") && before.contains("ci/a"), "{before}");
        assert!(!before.contains("prod/b"), "{before}");
    }
}

#[tokio::test]
async fn the_streams_of_a_token_that_is_taken_away_end() {
    let (directory, known, given) = tokens(&[("ops", "look,hold *")]);
    let mut settings = Settings::default();
    settings.tokens = Some(known);
    let served = Served::with(settings);
    let ops = served.as_caller(&given[0]);
    let session = ops.session("60s").await;
    let hold = ops.hold(&session, "b").await;
    let of_locks = ops.stream("/v1/events").await;
    let of_hold = ops.stream(&format!("/v1/holds/{hold}/events")).await;
    let holds = ops.stream("/v1/hold?name=a").await;
    std::fs::write(directory.path().join("tokens"), Tokens::generate("other").unwrap().1).unwrap();
    let (of_locks, of_hold, holds) = tokio::join!(of_locks.rest(), of_hold.rest(), holds.rest());
    assert!(of_locks.contains("connected") && of_hold.contains("held"), "{of_locks}{of_hold}");
    assert!(holds.ends_with("lost: bad_token\n"), "{holds}");
    served.until_free("a").await;
}

#[tokio::test]
async fn a_hold_is_shown_since_its_grant_and_not_since_its_join() {
    const WAIT: Duration = Duration::from_millis(1500);
    let served = Served::new();
    let session = served.session("60s").await;
    let first = served.hold(&session, "a").await;
    let release = async {
        served.until_waiting("a", 1).await;
        tokio::time::sleep(WAIT).await;
        served.delete(&format!("/v1/holds/{first}")).await
    };
    let (second, _) =
        tokio::join!(served.post("/v1/holds", json!({"session": session, "names": ["a"]})), release);
    assert_eq!(second.status, 201, "{second:?}");
    let shown = served.get("/v1/locks/a").await.body["claims"][0].clone();
    let (age, held) = (shown["age_seconds"].as_f64().unwrap(), shown["held_seconds"].as_f64().unwrap());
    assert!(age >= WAIT.as_secs_f64() && held < age - 1.0, "{shown}");
}

async fn process(served: &Served, host: &str) -> String {
    let holder = json!({"who": "job", "host": host, "pid": 7});
    let made = served.post("/v1/sessions", json!({"ttl": "60s", "holder": holder})).await;
    made.text_of("session")
}

#[tokio::test]
async fn a_lock_shows_the_deadlocks_that_the_token_may_see() {
    let (_directory, known, given) = tokens(&[("ops", "look,hold *"), ("a", "look a/")]);
    let mut settings = Settings::default();
    settings.tokens = Some(known);
    let served = Served::with(settings);
    let (ops, a) = (served.as_caller(&given[0]), served.as_caller(&given[1]));
    let (one, two) = (process(&ops, "one").await, process(&ops, "two").await);
    ops.hold(&one, "a/1").await;
    ops.hold(&two, "b/2").await;
    ops.hold(&two, "a/3").await;
    let wait =
        |session: &str, name: &str| ops.post("/v1/holds", json!({"session": session, "names": [name]}));
    let looks = async {
        served.until_waiting("b/2", 1).await;
        served.until_waiting("a/1", 1).await;
        let deadlocks = async |caller: &Served, name: &str| -> Vec<Value> {
            let shown = caller.get(&format!("/v1/locks/{name}")).await;
            shown.body["deadlocks"].as_array().unwrap_or_else(|| panic!("{shown:?}")).clone()
        };
        let circles = deadlocks(&ops, "a/1").await;
        let circle = &circles[0];
        assert_eq!(circle.as_array().unwrap().len(), 2, "{circle}");
        assert!(circle.to_string().contains("\"waits_for_lock\":\"b/2\""), "{circle}");
        assert!(deadlocks(&ops, "a/3").await.is_empty(), "nobody waits for it");
        assert!(deadlocks(&a, "a/1").await.is_empty(), "half of the circle is hidden from this token");
    };
    tokio::select! {
        reply = wait(&one, "b/2") => panic!("{reply:?}"),
        reply = wait(&two, "a/1") => panic!("{reply:?}"),
        () = looks => {}
    }
}

#[tokio::test]
async fn the_history_has_this_servers_holds_without_anybody_watching() {
    let served = Served::new();
    let session = served.session("60s").await;
    let hold = served.hold(&session, "a").await;
    assert_eq!(served.delete(&format!("/v1/holds/{hold}")).await.status, 204);
    let hold = served.hold(&session, "a").await;
    let claim = served.keeper.look("a").await.unwrap().unwrap().claims[0].id.clone();
    assert_eq!(served.delete(&format!("/v1/locks/a/claims/{claim}")).await.status, 204);
    let path = format!("/v1/holds/{hold}");
    until("the hold is lost", async || served.get(&path).await.status == 410).await;
    assert_eq!(served.delete(&path).await.code(), "lost");
    let shown = served.get("/v1/locks/a").await;
    let history = shown.body["history"].as_array().unwrap();
    let lost: Vec<bool> = history.iter().map(|past| past["lost"].as_bool().unwrap()).collect();
    assert_eq!(lost, [true, false], "the newest is the first: {history:?}");
    for past in history {
        let times = ["joined_ms", "held_ms", "left_ms"].map(|name| past[name].as_u64().unwrap());
        assert!(times.is_sorted() && past["token"].is_u64() && past["who"] == "test (local)", "{past}");
    }
    assert_eq!(history[0]["claim"], claim);
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let mut settings = Settings::default();
    settings.metrics = Some(prometheus().unwrap());
    let served = Served::with(settings);
    let session = served.session("60s").await;
    served.hold(&session, "a").await;
    let metrics = served.get("/metrics").await;
    assert_eq!(metrics.status, 200);
    assert!(metrics.headers["content-type"].to_str().unwrap().starts_with("text/plain"));
    for line in ["lockkeeper_serve_sessions 1", "lockkeeper_serve_holds 1", "lockkeeper_serve_waiters 0"] {
        assert!(metrics.text.lines().any(|found| found == line), "{line}: {}", metrics.text);
    }
    assert!(metrics.text.contains("# TYPE lockkeeper_granted_total counter"), "{}", metrics.text);
    for line in metrics.text.lines().filter(|line| !line.is_empty() && !line.starts_with("# ")) {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        assert!(name.starts_with("lockkeeper_") && value.parse::<f64>().is_ok(), "{line:?}");
    }
}
