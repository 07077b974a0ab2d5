//! Sessions and holds: what ends them, what a retry finds, and what the deadlines say.

mod support;

use lockkeeper_conformance::faulty::Faulty;
use lockkeeper_core::engine::Memory;
use lockkeeper_serve::Settings;
use serde_json::json;
use std::time::{Duration, Instant};
use support::{LIMIT, Served};

#[tokio::test]
async fn a_hold_has_a_token_and_a_deadline_and_is_released() {
    let served = Served::new();
    let session = served.session("10s").await;
    let held = served.post("/v1/holds", json!({"session": session, "names": ["b/c", "a"]})).await;
    assert_eq!(held.status, 201, "{held:?}");
    let tokens = held.body["tokens"].as_array().unwrap();
    assert_eq!(tokens.iter().map(|token| token["name"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b/c"]);
    assert!(held.milliseconds("valid_for_ms") <= 2970, "the engine's TTL of 3 s is the shorter one");
    let path = format!("/v1/holds/{}", held.text_of("hold"));
    assert_eq!(served.get(&path).await.body["state"], "held");
    assert_eq!(served.delete(&path).await.status, 204);
    assert_eq!(served.delete(&path).await.status, 204, "a retry after a lost reply");
    let gone = served.get(&path).await;
    assert_eq!((gone.status, gone.code()), (410, "released"));
    assert!(served.keeper.look("a").await.unwrap().is_none());
}

#[tokio::test]
async fn the_deadline_is_the_sessions_if_that_ends_first() {
    let served = Served::new();
    let session = served.session("1s").await;
    let held = served.post("/v1/holds", json!({"session": session, "names": ["a"]})).await;
    let valid_for = held.milliseconds("valid_for_ms");
    assert!(valid_for <= 990, "{valid_for}");
    // What a heartbeat says is never later than the moment at which the session ends.
    let sent = Instant::now();
    let beat = served.beat(&session).await;
    let promised = sent + Duration::from_millis(beat.body["holds"][0]["valid_for_ms"].as_u64().unwrap());
    served.until_free("a").await;
    assert!(Instant::now() > promised, "it was freed while the client still trusted it");
}

#[tokio::test]
async fn a_silent_session_loses_what_it_holds_and_stays_dead() {
    let served = Served::new();
    let session = served.session("300ms").await;
    let hold = served.hold(&session, "a").await;
    served.until_free("a").await;
    let gone = served.get(&format!("/v1/holds/{hold}")).await;
    assert_eq!((gone.status, gone.body["reason"].as_str()), (410, Some("silent")), "{gone:?}");
    let beat = served.beat(&session).await;
    assert_eq!((beat.status, beat.code()), (410, "session_ended"));
}

#[tokio::test]
async fn heartbeats_keep_a_session_over_many_ttls() {
    let served = Served::new();
    let session = served.session("300ms").await;
    let hold = served.hold(&session, "a").await;
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(served.beat(&session).await.status, 200);
    }
    assert_eq!(served.get(&format!("/v1/holds/{hold}")).await.status, 200);
}

#[tokio::test]
async fn ending_a_session_releases_all_and_ends_its_waits() {
    let served = Served::new();
    let (one, other) = (served.session("10s").await, served.session("10s").await);
    served.hold(&one, "a").await;
    served.hold(&other, "b").await;
    let waiting = served.post("/v1/holds", json!({"session": one, "names": ["b"]}));
    let ending = async {
        served.until_waiting("b", 1).await;
        served.delete(&format!("/v1/sessions/{one}")).await
    };
    let (waited, ended) = tokio::join!(waiting, ending);
    assert_eq!(ended.status, 204);
    assert_eq!((waited.status, waited.code()), (410, "session_ended"));
    assert!(served.keeper.look("a").await.unwrap().is_none(), "free as soon as the reply is there");
    served.until_waiting("b", 0).await;
    assert_eq!(served.delete(&format!("/v1/sessions/{one}")).await.status, 204, "a retry after a lost reply");
}

#[tokio::test]
async fn closing_the_connection_of_a_wait_leaves_the_queue() {
    let served = Served::new();
    let session = served.session("10s").await;
    served.hold(&session, "a").await;
    let waiting = served.post("/v1/holds", json!({"session": session, "names": ["a"]}));
    tokio::select! {
        reply = waiting => panic!("{reply:?}"),
        () = served.until_waiting("a", 1) => {}
    }
    served.until_waiting("a", 0).await;
}

#[tokio::test]
async fn a_wait_that_ends_says_who_is_in_the_way() {
    let served = Served::new();
    let session = served.session("10s").await;
    served.hold(&session, "a").await;
    let busy = served.post("/v1/holds", json!({"session": session, "names": ["a"], "wait": "50ms"})).await;
    assert_eq!((busy.status, busy.code()), (409, "busy"));
    assert_eq!(busy.body["busy"][0]["place"], 2);
    assert_eq!(busy.body["busy"][0]["holders"][0], "test (local)");
    assert!(busy.milliseconds("waited_ms") >= 50);
}

#[tokio::test]
async fn a_retry_with_the_same_key_finds_the_same_hold() {
    let served = Served::new();
    let session = served.session("10s").await;
    let body = json!({"session": session, "names": ["a"], "wait": 0});
    let first = served.post_with_key("/v1/holds", "k", body.clone()).await;
    let again = served.post_with_key("/v1/holds", "k", body.clone()).await;
    assert_eq!(first.text_of("hold"), again.text_of("hold"));
    let other = served.post_with_key("/v1/holds", "k", json!({"session": session, "names": ["b"]})).await;
    assert_eq!((other.status, other.code()), (422, "key_reused"));
    served.delete(&format!("/v1/holds/{}", first.text_of("hold"))).await;
    let late = served.post_with_key("/v1/holds", "k", body).await;
    assert_eq!((late.status, late.code()), (410, "released"), "a late copy of the request takes nothing");
    assert!(served.keeper.look("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_retry_with_the_same_key_keeps_the_place_in_the_queue() {
    let served = Served::new();
    let (one, two) = (served.session("20s").await, served.session("20s").await);
    let hold = served.hold(&one, "a").await;
    let body = json!({"session": two, "names": ["a"]});
    tokio::select! {
        reply = served.post_with_key("/v1/holds", "k", body.clone()) => panic!("{reply:?}"),
        () = served.until_waiting("a", 1) => {}
    }
    let claim = async || served.keeper.look("a").await.unwrap().unwrap().waiters().next().unwrap().id.clone();
    let before = claim().await;
    let retry = served.post_with_key("/v1/holds", "k", body);
    let release = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(claim().await, before);
        served.delete(&format!("/v1/holds/{hold}")).await
    };
    let (granted, _) = tokio::join!(retry, release);
    assert_eq!(granted.status, 201, "{granted:?}");
    assert_eq!(granted.body["tokens"][0]["claim"], before);
}

#[tokio::test]
async fn a_request_that_is_taken_back_never_comes_to_a_hold() {
    let served = Served::new();
    let session = served.session("10s").await;
    let early = served.delete(&format!("/v1/sessions/{session}/requests/k")).await;
    assert_eq!((early.status, early.code()), (404, "unknown_request"));
    let late =
        served.post_with_key("/v1/holds", "k", json!({"session": session, "names": ["a"], "wait": 0})).await;
    assert_eq!((late.status, late.code()), (410, "released"));
    let held =
        served.post_with_key("/v1/holds", "l", json!({"session": session, "names": ["a"], "wait": 0})).await;
    assert_eq!(held.status, 201);
    assert_eq!(served.delete(&format!("/v1/sessions/{session}/requests/l")).await.status, 204);
    assert!(served.keeper.look("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_session_is_made_once_by_its_key() {
    let served = Served::new();
    let first = served.post_with_key("/v1/sessions", "k", json!({})).await;
    let again = served.post_with_key("/v1/sessions", "k", json!({})).await;
    assert_eq!(first.text_of("session"), again.text_of("session"));
}

#[tokio::test]
async fn a_key_is_for_one_kind_of_session() {
    let served = Served::new();
    let made = served.post_with_key("/v1/sessions", "k", json!({"ttl": "20s", "holder": "a"})).await;
    for other in [json!({"ttl": "30s", "holder": "a"}), json!({"ttl": "20s", "holder": "b"}), json!({})] {
        let refused = served.post_with_key("/v1/sessions", "k", other).await;
        assert_eq!((refused.status, refused.code()), (422, "key_reused"), "{refused:?}");
    }
    let again = served.post_with_key("/v1/sessions", "k", json!({"ttl": 20000, "holder": "a"})).await;
    assert_eq!(made.text_of("session"), again.text_of("session"));
}

#[tokio::test]
async fn a_late_copy_of_a_request_that_came_to_nothing_takes_nothing() {
    let served = Served::new();
    let (one, two) = (served.session("30s").await, served.session("30s").await);
    let hold = served.hold(&one, "a").await;
    let body = json!({"session": two, "names": ["a"], "wait": 0});
    assert_eq!(served.post_with_key("/v1/holds", "busy", body.clone()).await.code(), "busy");
    let permits = json!({"session": two, "names": ["a"], "mode": {"permits": 1, "of": 2}});
    assert_eq!(served.post_with_key("/v1/holds", "other", permits.clone()).await.code(), "mismatch");
    served.delete(&format!("/v1/holds/{hold}")).await;
    let late = served.post_with_key("/v1/holds", "busy", body).await;
    assert_eq!(
        (late.code(), &late.body["busy"]),
        ("busy", &json!([])),
        "only the first reply says who was in the way"
    );
    assert_eq!(served.post_with_key("/v1/holds", "other", permits).await.code(), "mismatch");
    assert!(served.keeper.look("a").await.unwrap().is_none());
}

#[tokio::test]
async fn a_late_copy_of_a_wait_that_was_given_up_takes_nothing() {
    let served = Served::new();
    // The time for a retry is the session's TTL, if that is short.
    let (one, two) = (served.session("30s").await, served.session("1s").await);
    let hold = served.hold(&one, "a").await;
    let body = json!({"session": two, "names": ["a"]});
    tokio::select! {
        reply = served.post_with_key("/v1/holds", "k", body.clone()) => panic!("{reply:?}"),
        () = served.until_waiting("a", 1) => {}
    }
    support::until("the wait is given up", async || {
        assert_eq!(served.beat(&two).await.status, 200);
        served.keeper.look("a").await.unwrap().unwrap().waiters().count() == 0
    })
    .await;
    served.delete(&format!("/v1/holds/{hold}")).await;
    let late = served.post_with_key("/v1/holds", "k", body).await;
    assert_eq!((late.status, late.code()), (409, "busy"));
    assert!(late.body["busy"].is_null(), "nobody is in the way: a client sends a new request");
    assert!(served.keeper.look("a").await.unwrap().is_none());
}

/// Law 5: the retry comes, has its reply and is gone in one moment, so that nothing of the server sees it wait.
async fn a_hold_that_a_retry_has_fetched_stays() {
    const TTL: Duration = Duration::from_secs(3);
    let served = Served::new();
    // The time for a retry is the session's TTL, if that is short.
    let (one, two) = (served.session("60s").await, served.session("3s").await);
    let first = served.hold(&one, "a").await;
    let body = json!({"session": two, "names": ["a"]});
    tokio::select! {
        reply = served.post_with_key("/v1/holds", "k", body.clone()) => panic!("{reply:?}"),
        () = served.until_waiting("a", 1) => {}
    }
    served.delete(&format!("/v1/holds/{first}")).await;
    let beat = async || {
        let beat = served.beat(&two).await;
        assert_eq!(beat.status, 200, "{beat:?}");
        beat.body["holds"].as_array().unwrap().len()
    };
    support::until("it is granted", async || {
        assert_eq!(beat().await, 0, "no deadline for what may be given back");
        served.keeper.look("a").await.unwrap().unwrap().holders().count() == 1
    })
    .await;
    let retry = served.post_with_key("/v1/holds", "k", body).await;
    assert_eq!(retry.status, 201, "{retry:?}");
    let fetched = Instant::now();
    let path = format!("/v1/holds/{}", retry.text_of("hold"));
    while fetched.elapsed() < TTL * 3 / 2 {
        tokio::time::sleep(TTL / 30).await;
        assert_eq!(beat().await, 1, "the hold is gone");
    }
    let held = served.get(&path).await;
    assert_eq!(held.status, 200, "{held:?}");
    assert_eq!(served.keeper.look("a").await.unwrap().unwrap().holders().count(), 1);
}

#[tokio::test]
async fn a_hold_that_a_retry_has_fetched_stays_on_one_thread() {
    a_hold_that_a_retry_has_fetched_stays().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_a_retry_has_fetched_stays_on_several_threads() {
    a_hold_that_a_retry_has_fetched_stays().await;
}

#[tokio::test]
async fn a_hold_that_nobody_comes_back_for_is_given_back() {
    let served = Served::new();
    let (one, two) = (served.session("60s").await, served.session("1s").await);
    let first = served.hold(&one, "a").await;
    let body = json!({"session": two, "names": ["a"]});
    tokio::select! {
        reply = served.post_with_key("/v1/holds", "k", body.clone()) => panic!("{reply:?}"),
        () = served.until_waiting("a", 1) => {}
    }
    served.delete(&format!("/v1/holds/{first}")).await;
    support::until("it is given back", async || {
        assert_eq!(served.beat(&two).await.status, 200);
        served.keeper.look("a").await.unwrap().is_none()
    })
    .await;
    let late = served.post_with_key("/v1/holds", "k", body).await;
    assert_eq!((late.status, late.code()), (410, "released"), "{late:?}");
}

/// Its client learns of each hold from which request it comes, so that it can release one that it knows nothing of.
#[tokio::test]
async fn a_hold_names_the_key_of_its_request() {
    let served = Served::new();
    let session = served.session("30s").await;
    let body = json!({"session": session, "names": ["a"]});
    let held = served.post_with_key("/v1/holds", "k", body).await;
    assert_eq!(held.text_of("key"), "k");
    assert_eq!(served.beat(&session).await.body["holds"][0]["key"], "k");
}

#[tokio::test]
async fn a_session_whose_client_goes_away_while_it_ends_is_released_to_the_last() {
    let engine = Faulty::wrap(Memory::engine());
    let served = Served::over(engine.clone(), Settings::default());
    let session = served.session("30s").await;
    let hold = served.hold(&session, "a").await;
    engine.delay(Duration::from_millis(300));
    let path = format!("/v1/sessions/{session}");
    tokio::select! {
        reply = served.delete(&path) => panic!("{reply:?}"),
        () = support::until("the session has ended", async || served.beat(&session).await.status == 410) => {}
    }
    served.until_free("a").await;
    let history = async || served.get("/v1/locks/a").await.body["history"].as_array().unwrap().len();
    support::until("the hold is over for the server, too", async || history().await == 1).await;
    assert_eq!(served.get(&format!("/v1/holds/{hold}")).await.code(), "session_ended");
}

#[tokio::test]
async fn an_evicted_hold_is_lost_with_its_reason() {
    let served = Served::new();
    let session = served.session("30s").await;
    let hold = served.hold(&session, "a/b").await;
    let claim = served.keeper.look("a/b").await.unwrap().unwrap().claims[0].id.clone();
    assert_eq!(served.delete(&format!("/v1/locks/a/b/claims/{claim}")).await.status, 204);
    let path = format!("/v1/holds/{hold}");
    support::until("the hold is lost", async || served.get(&path).await.status == 410).await;
    let lost = served.delete(&path).await;
    assert_eq!((lost.status, lost.code(), lost.body["reason"].as_str()), (410, "lost", Some("gone")));
    let again = served.delete(&format!("/v1/locks/a/b/claims/{claim}")).await;
    assert_eq!((again.status, again.code()), (404, "unknown_claim"));
}

#[tokio::test]
async fn a_hold_that_the_engine_does_not_confirm_is_uncertain_and_says_so() {
    let engine = Faulty::wrap(Memory::engine());
    let served = Served::over(engine.clone(), Settings::default());
    let session = served.session("30s").await;
    let hold = served.hold(&session, "a").await;
    assert_eq!(served.get("/v1/locks/a").await.body["claims"][0]["uncertain"], false);
    engine.cut(true);
    let uncertain = async || served.get("/v1/locks").await.body["locks"][0]["claims"][0]["uncertain"] == true;
    support::until("the list says so", uncertain).await;
    assert_eq!(served.get(&format!("/v1/holds/{hold}")).await.body["state"], "uncertain");
    engine.cut(false);
    support::until("it is confirmed again", async || !uncertain().await).await;
    assert_eq!(served.get(&format!("/v1/holds/{hold}")).await.body["state"], "held");
}

#[tokio::test]
async fn a_writer_becomes_a_reader_and_others_read_with_it() {
    let served = Served::new();
    let session = served.session("10s").await;
    let hold = served.hold(&session, "a").await;
    let read = json!({"session": session, "names": ["a"], "mode": "shared", "wait": 0});
    assert_eq!(served.post("/v1/holds", read.clone()).await.status, 409);
    let shared = served.post(&format!("/v1/holds/{hold}/downgrade"), json!({})).await;
    assert_eq!((shared.status, shared.body["mode"].as_str()), (200, Some("shared")));
    assert_eq!(served.post("/v1/holds", read).await.status, 201);
    let permits = json!({"session": session, "names": ["p"], "mode": {"permits": 3, "of": 4}, "wait": 0});
    assert_eq!(served.post("/v1/holds", permits.clone()).await.status, 201);
    assert_eq!(served.post("/v1/holds", permits).await.status, 409);
}

#[tokio::test]
async fn two_servers_on_one_engine_serve_one_queue() {
    let engine = Memory::new();
    let servers = [Served::on(&engine, Settings::default()), Served::on(&engine, Settings::default())];
    let first = servers[0].session("30s").await;
    let hold = servers[0].hold(&first, "a").await;
    let order = std::sync::Mutex::new(Vec::new());
    let wait = async |at: usize| {
        let served = &servers[at % 2];
        let session = served.session("30s").await;
        if at > 0 {
            served.until_waiting("a", at).await;
        }
        let held = served.post("/v1/holds", json!({"session": session, "names": ["a"]})).await;
        assert_eq!(held.status, 201, "{held:?}");
        order.lock().unwrap().push(at);
        served.delete(&format!("/v1/holds/{}", held.text_of("hold"))).await;
    };
    let release = async {
        servers[1].until_waiting("a", 6).await;
        servers[0].delete(&format!("/v1/holds/{hold}")).await
    };
    let all = async { tokio::join!(wait(0), wait(1), wait(2), wait(3), wait(4), wait(5), release) };
    tokio::time::timeout(LIMIT, all).await.unwrap();
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test]
async fn at_the_end_waits_end_and_holds_are_released_when_nobody_trusts_them() {
    let served = Served::new();
    let session = served.session("1s").await;
    let hold = served.hold(&session, "a").await;
    let waiting = served.post("/v1/holds", json!({"session": session, "names": ["a"]}));
    let ending = async {
        served.until_waiting("a", 1).await;
        let sent = std::time::Instant::now();
        let reply = served.get(&format!("/v1/holds/{hold}")).await;
        let given = Duration::from_millis(reply.body["valid_for_ms"].as_u64().unwrap());
        served.server.end().await;
        assert!(sent.elapsed() >= given, "released after {:?}, trusted for {given:?}", sent.elapsed());
    };
    let (waited, ()) = tokio::join!(waiting, ending);
    assert_eq!((waited.status, waited.code()), (503, "ending"));
    assert_eq!(waited.headers["retry-after"], "1");
    assert!(served.keeper.look("a").await.unwrap().is_none());
    let new = served.post("/v1/sessions", json!({})).await;
    assert_eq!((new.status, new.code()), (503, "ending"));
}

#[tokio::test]
async fn draining_keeps_holds_until_they_are_released() {
    let mut settings = Settings::default();
    settings.drain = true;
    let served = Served::with(settings);
    let session = served.session("10s").await;
    let hold = served.hold(&session, "a").await;
    let release = async {
        support::until("the server ends", async || served.get("/readyz").await.status == 503).await;
        assert_eq!(served.get(&format!("/v1/holds/{hold}")).await.status, 200, "still held");
        assert_eq!(served.delete(&format!("/v1/holds/{hold}")).await.status, 204);
    };
    let ((), ()) =
        tokio::time::timeout(LIMIT, async { tokio::join!(served.server.end(), release) }).await.unwrap();
}
