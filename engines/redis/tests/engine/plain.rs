//! The style 'plain' on one server: other clients' locks, wakes, and what it costs.

use crate::common::{bare_keeper, calls, direct, keeper, soon, until};
use lockkeeper_core::{Error, State};
use lockkeeper_testkit::Redis;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static REDIS: LazyLock<Redis> = LazyLock::new(Redis::start);

fn url() -> String {
    format!("{}?style=plain", REDIS.url())
}

#[tokio::test]
async fn another_clients_key_excludes_us_and_ours_excludes_it() {
    let keeper = bare_keeper(&url()).await;
    let mut direct = direct(REDIS.port()).await;
    let mut set = redis::cmd("SET");
    set.arg("plain/foreign").arg("0123456789abcdef0123456789abcdef").arg("NX").arg("PX").arg(60_000);
    let _: () = set.query_async(&mut direct).await.unwrap();
    assert!(keeper.mutex("plain/foreign").try_lock().await.unwrap().is_none());
    let seen = keeper.inspect("plain/foreign").await.unwrap();
    assert!(seen[0].claims[0].foreign);
    assert!(keeper.evict("plain/foreign", &seen[0].claims[0].id).await.unwrap());
    let guard = keeper.mutex("plain/foreign").try_lock().await.unwrap().unwrap();
    let taken: Option<String> = set.query_async(&mut direct).await.unwrap();
    assert_eq!(taken, None, "SET NX must not take what we hold");
    guard.release().await.unwrap();
    let taken: Option<String> = set.query_async(&mut direct).await.unwrap();
    assert!(taken.is_some());
}

/// What pottery, redlock-py, aioredlock and people write is evicted as it is shown.
#[tokio::test]
async fn another_clients_key_is_evicted_whatever_its_value() {
    let keeper = bare_keeper(&url()).await;
    let mut direct = direct(REDIS.port()).await;
    for value in ["theirs", "123", "a b", "one two three", "5f0c8f9e-6f4a-4d0e-9a51-0e4f4c1d2b3a", "größe"]
    {
        let _: () = redis::cmd("SET").arg("plain/any").arg(value).query_async(&mut direct).await.unwrap();
        assert!(!keeper.evict("plain/any", "another").await.unwrap(), "{value}");
        let shown = keeper.look("plain/any").await.unwrap().unwrap().claims.remove(0);
        assert!(shown.foreign && keeper.evict("plain/any", &shown.id).await.unwrap(), "{shown:?}");
        assert!(keeper.look("plain/any").await.unwrap().is_none(), "{value}");
    }
}

/// rslock's value is twenty random bytes.
#[tokio::test]
async fn a_key_whose_value_is_no_text_is_shown_and_evicted() {
    let keeper = bare_keeper(&url()).await;
    let mut direct = direct(REDIS.port()).await;
    let value: &[u8] = b"\x80\xff \x00\x01binary";
    let mut set = redis::cmd("SET");
    let _: () =
        set.arg("plain/binary").arg(value).arg("PX").arg(60_000).query_async(&mut direct).await.unwrap();
    let shown = keeper.look("plain/binary").await.unwrap().expect("it is held").claims.remove(0);
    assert_eq!((shown.foreign, shown.id.as_str()), (true, "0x80ff20000162696e617279"));
    assert!(!keeper.evict("plain/binary", "0x80ff").await.unwrap());
    assert!(keeper.evict("plain/binary", &shown.id).await.unwrap());
    assert!(keeper.look("plain/binary").await.unwrap().is_none());
}

/// With an empty namespace the locks stand among all other keys of the database, and among those of the style 'queue'.
#[tokio::test]
async fn a_list_shows_locks_and_not_every_string_key() {
    let redis = Redis::start();
    let plain = bare_keeper(&format!("{}?style=plain", redis.url())).await;
    let queue = keeper(&redis.url()).await;
    let mut direct = direct(redis.port()).await;
    let mut set = async |key: &str, value: &str, ttl_ms: u64| {
        let mut command = redis::cmd("SET");
        command.arg(key).arg(value);
        if ttl_ms > 0 {
            command.arg("PX").arg(ttl_ms);
        }
        let _: () = command.query_async(&mut direct).await.unwrap();
    };
    set("settings", "dark", 0).await;
    set("numbers", "5 10 fifteen", 0).await;
    set("page", &"cached ".repeat(20_000), 60_000).await;
    set("session", &"x".repeat(129), 60_000).await;
    set("redlock:job", "93fdd3a4-8a5c-4dd8-8a0e-2c2ad7d2f9f1", 60_000).await;
    queue.mutex("idle").lock().await.unwrap().release().await.unwrap();
    let held = queue.mutex("held").lock().await.unwrap();
    let ours = plain.mutex("ours").lock().await.unwrap();
    let found = plain.inspect("").await.unwrap();
    let names: Vec<(&str, bool)> =
        found.iter().map(|lock| (lock.name.as_str(), lock.claims[0].foreign)).collect();
    assert_eq!(names, [("ours", false), ("redlock:job", true)]);
    // Such a key excludes us all the same, and is shown to those who name it.
    assert!(plain.mutex("settings").try_lock().await.unwrap().is_none());
    assert!(plain.look("settings").await.unwrap().expect("in the way").claims[0].foreign);
    assert!(plain.look("numbers").await.unwrap().expect("in the way").claims[0].foreign);
    ours.release().await.unwrap();
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_key_that_was_taken_from_us_is_not_freed_by_us() {
    let keeper = bare_keeper(&url()).await;
    let mut direct = direct(REDIS.port()).await;
    let guard = keeper.mutex("plain/stolen").lock().await.unwrap();
    let _: () = redis::cmd("SET").arg("plain/stolen").arg("theirs").query_async(&mut direct).await.unwrap();
    assert!(guard.release().await.is_err());
    let value: String = redis::cmd("GET").arg("plain/stolen").query_async(&mut direct).await.unwrap();
    assert_eq!(value, "theirs");
}

#[tokio::test]
async fn a_release_wakes_a_waiter_long_before_its_pause_is_over() {
    let (one, other) = (keeper(&url()).await, keeper(&url()).await);
    let mut direct = direct(REDIS.port()).await;
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let guard = one.mutex("woken").lock().await.unwrap();
        let waiting = tokio::spawn({
            let mutex = other.mutex("woken");
            async move { mutex.lock().await.map(|guard| (guard, Instant::now())) }
        });
        until("it waits", async || {
            let count: u64 = redis::cmd("ZCARD")
                .arg("{lockkeeper/woken}:waiting")
                .query_async(&mut direct.clone())
                .await
                .unwrap();
            count == 1
        })
        .await;
        let freed = Instant::now();
        guard.release().await.unwrap();
        let (guard, had) = soon("it is woken", waiting).await.unwrap().unwrap();
        slowest = slowest.max(had.saturating_duration_since(freed));
        guard.release().await.unwrap();
    }
    // By chance alone, not all of twenty random pauses of 250 ms and more would end so soon.
    assert!(slowest < Duration::from_millis(250), "{slowest:?}");
    let _: () = redis::cmd("PING").query_async(&mut direct).await.unwrap();
}

#[tokio::test]
async fn a_wake_for_one_who_gave_up_goes_to_the_next() {
    let (one, other) = (keeper(&url()).await, keeper(&url()).await);
    let guard = one.mutex("passed").lock().await.unwrap();
    for _ in 0..5 {
        assert!(other.mutex("passed").lock_within(Duration::from_millis(20)).await.unwrap().is_none());
    }
    let waiting = tokio::spawn({
        let mutex = other.mutex("passed");
        async move { mutex.lock().await }
    });
    tokio::task::yield_now().await;
    guard.release().await.unwrap();
    soon("the wake is passed on", waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn readers_and_permits_are_refused_with_the_way_out() {
    let keeper = keeper(&url()).await;
    for error in [
        keeper.rwlock("refused").read().await.unwrap_err(),
        keeper.semaphore("refused", 2).acquire(1).await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains("queue"), "{error}");
    }
}

#[tokio::test]
async fn an_uncontended_pair_costs_two_requests() {
    let redis = Redis::start();
    let keeper = keeper(&format!("{}?style=plain", redis.url())).await;
    let mut direct = direct(redis.port()).await;
    keeper.mutex("pair").lock().await.unwrap().release().await.unwrap();
    let before = calls(&mut direct).await;
    for _ in 0..100 {
        keeper.mutex("pair").lock().await.unwrap().release().await.unwrap();
    }
    let after = calls(&mut direct).await;
    assert_eq!(after["evalsha"] - before["evalsha"], 200);
}

/// A redis-py client and ours under contention: a counter in a file that nothing else protects stays exact.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_py_and_we_alternate_and_a_shared_counter_stays_exact() {
    const EACH: u64 = 200;
    let directory = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = directory.join(format!("counter-{}", std::process::id()));
    std::fs::write(&path, "0").unwrap();
    let python = |times: u64| {
        Command::new("/usr/bin/python3")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/interop.py"))
            .args([&REDIS.port().to_string(), "interop/counter"])
            .arg(&path)
            .arg(times.to_string())
            .spawn()
            .expect("Debian's python3 is there: run scripts/install-engines redis")
    };
    let mut theirs = [python(EACH), python(EACH)];
    let mut tokens = Vec::new();
    let keeper = bare_keeper(&url()).await;
    for _ in 0..EACH {
        let guard = soon("our turn comes", keeper.mutex("interop/counter").lock()).await.unwrap();
        let number: u64 = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        tokio::task::yield_now().await;
        std::fs::write(&path, (number + 1).to_string()).unwrap();
        assert_eq!(guard.state(), State::Held);
        tokens.push(guard.token().unwrap());
        guard.release().await.unwrap();
    }
    for child in &mut theirs {
        assert!(child.wait().unwrap().success(), "redis-py failed: run scripts/install-engines redis");
    }
    let counted: u64 = std::fs::read_to_string(&path).unwrap().parse().unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(counted, 3 * EACH);
    assert!(tokens.is_sorted_by(|one, next| one < next));
}

async fn next_token(keeper: &lockkeeper_core::Keeper, name: &str) -> u64 {
    let guard = keeper.mutex(name).lock().await.unwrap();
    let token = guard.token().unwrap().0;
    guard.release().await.unwrap();
    token
}

async fn server_time_us(direct: &mut redis::aio::MultiplexedConnection) -> u64 {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(direct).await.unwrap();
    seconds * 1_000_000 + micros
}

#[tokio::test]
async fn every_token_follows_the_clock_and_begins_there_if_the_last_one_is_lost() {
    let redis = Redis::start();
    let keeper = bare_keeper(&format!("{}?style=plain", redis.url())).await;
    let mut direct = direct(redis.port()).await;
    for _ in 0..3 {
        let before = server_time_us(&mut direct).await;
        let token = next_token(&keeper, "plain/clock").await;
        assert!(token > before && token < server_time_us(&mut direct).await);
        let _: () = redis::cmd("DEL").arg("lockkeeper:token").query_async(&mut direct).await.unwrap();
        assert!(next_token(&keeper, "plain/clock").await > token);
    }
}

/// What a keeper finds after a failover to a replica that was behind, or after a restart with older data.
#[tokio::test]
async fn a_last_token_that_is_behind_is_passed_by_the_clock() {
    let redis = Redis::start();
    let keeper = bare_keeper(&format!("{}?style=plain", redis.url())).await;
    let token = next_token(&keeper, "plain/behind").await;
    let mut direct = direct(redis.port()).await;
    let mut set = redis::cmd("SET");
    let _: () = set.arg("lockkeeper:token").arg(token - 5).query_async(&mut direct).await.unwrap();
    assert!(next_token(&keeper, "plain/behind").await > token);
}

/// What a keeper finds after the server's clock was set back by an hour: the last token is ahead of it.
#[tokio::test]
async fn tokens_grow_although_the_clock_was_set_back() {
    let redis = Redis::start();
    let mut direct = direct(redis.port()).await;
    let ahead = server_time_us(&mut direct).await + 3_600_000_000;
    let _: () = redis::cmd("SET").arg("lockkeeper:token").arg(ahead).query_async(&mut direct).await.unwrap();
    for (style, past) in [("queue", 0), ("plain", 10)] {
        let keeper = bare_keeper(&format!("{}?style={style}", redis.url())).await;
        for more in 1..=10 {
            assert_eq!(next_token(&keeper, "set back").await, ahead + past + more, "{style}");
        }
    }
    let ends: i64 = redis::cmd("PTTL").arg("lockkeeper:token").query_async(&mut direct).await.unwrap();
    assert_eq!(ends, -1, "the last token does not expire by the clock that it guards against");
}
