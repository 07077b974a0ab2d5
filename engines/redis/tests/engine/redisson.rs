//! The styles 'redisson' and 'redisson-rw' on one server: their layout, refusals, wakes and costs. How they get on with
//! Redisson itself is tested in `interop/`.

use crate::common::{bare_keeper, calls, direct, soon, try_keeper, until};
use lockkeeper_core::{Error, Keeper, State};
use lockkeeper_testkit::Redis;
use redis::aio::MultiplexedConnection;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

static REDIS: LazyLock<Redis> = LazyLock::new(Redis::start);

/// A holder of Redisson's.
const THREAD: &str = "2f0c5d9e-7a31-4e0b-9c11-0a1b2c3d4e5f:31";

async fn mutexes() -> Keeper {
    bare_keeper(&format!("{}?style=redisson", REDIS.url())).await
}

async fn read_write() -> Keeper {
    bare_keeper(&format!("{}?style=redisson-rw", REDIS.url())).await
}

async fn run<T: redis::FromRedisValue>(direct: &mut MultiplexedConnection, command: &str) -> T {
    let mut words = command.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    for word in words {
        command.arg(word);
    }
    command.query_async(direct).await.unwrap()
}

/// Waits until a client subscribes to the channel.
async fn until_subscribed(direct: &MultiplexedConnection, channel: &str) {
    until("it waits", async || {
        let (_, count): (String, u64) = run(&mut direct.clone(), &format!("PUBSUB NUMSUB {channel}")).await;
        count == 1
    })
    .await;
}

#[tokio::test]
async fn a_lock_looks_as_redisson_writes_it_and_leaves_nothing_behind() {
    let redis = Redis::start();
    let url = |style| format!("{}?style={style}", redis.url());
    let (mutexes, locks) = (bare_keeper(&url("redisson")).await, bare_keeper(&url("redisson-rw")).await);
    let mut direct = direct(redis.port()).await;
    let guard = mutexes.mutex("looks").lock().await.unwrap();
    let fields: HashMap<String, String> = run(&mut direct, "HGETALL looks").await;
    let (field, count) = fields.iter().next().unwrap();
    let form: Vec<usize> = field.split(['-', ':']).map(str::len).collect();
    assert_eq!((fields.len(), &form[..], &**count), (1, &[8, 4, 4, 4, 12, 1][..], "1"), "{field}");
    let left_ms: i64 = run(&mut direct, "PTTL looks").await;
    assert!((5000..=10_000).contains(&left_ms), "{left_ms}");
    guard.release().await.unwrap();

    let writer = locks.rwlock("both").write().await.unwrap();
    let fields: HashMap<String, String> = run(&mut direct, "HGETALL both").await;
    assert_eq!((fields.len(), fields["mode"].as_str()), (2, "write"));
    assert!(fields.keys().any(|field| field.ends_with(":0:write")), "{fields:?}");
    writer.downgrade().await.unwrap();
    let reader = locks.rwlock("both").read().await.unwrap();
    let fields: HashMap<String, String> = run(&mut direct, "HGETALL both").await;
    assert_eq!((fields.len(), fields["mode"].as_str()), (3, "read"));
    for field in fields.keys().filter(|field| *field != "mode") {
        let left_ms: i64 = run(&mut direct, &format!("PTTL {{both}}:{field}:rwlock_timeout:1")).await;
        assert!(left_ms > 0, "{field}");
    }
    reader.release().await.unwrap();
    writer.release().await.unwrap();
    let keys: Vec<String> = run(&mut direct, "KEYS *").await;
    assert_eq!(keys, ["lockkeeper:token"]);
}

#[tokio::test]
async fn a_key_in_another_use_is_refused_and_stays_as_it_is() {
    let (mutexes, locks) = (mutexes().await, read_write().await);
    let mut direct = direct(REDIS.port()).await;
    let _: () = run(&mut direct, "SET wrong/string value").await;
    let _: () = run(&mut direct, "RPUSH wrong/list value").await;
    let _: () = run(&mut direct, "HSET wrong/hash name value").await;
    let _: () = run(&mut direct, &format!("HSET wrong/rlock {THREAD} 1")).await;
    let _: () = run(&mut direct, &format!("HSET wrong/rwlock mode read {THREAD} 1")).await;
    let before: Vec<Vec<u8>> = dumps(&mut direct).await;
    for (name, why) in [
        ("string", "a key of the type string"),
        ("list", "a key of the type list"),
        ("hash", "no lock of Redisson's"),
        ("rwlock", "use the style 'redisson-rw'"),
    ] {
        let error = mutexes.mutex(format!("wrong/{name}")).lock().await.unwrap_err();
        assert!(matches!(&error, Error::Engine { temporary: false, .. }), "{error}");
        assert!(error.to_string().contains(why), "{name}: {error}");
    }
    for (name, why) in [
        ("string", "a key of the type string"),
        ("hash", "no lock of Redisson's"),
        ("rlock", "use the style 'redisson'"),
    ] {
        let lock = locks.rwlock(format!("wrong/{name}"));
        for error in [lock.read().await.unwrap_err(), lock.write().await.unwrap_err()] {
            assert!(error.to_string().contains(why), "{name}: {error}");
        }
    }
    assert_eq!(dumps(&mut direct).await, before);
    let shown = mutexes.inspect("wrong/").await.unwrap();
    assert_eq!(shown.iter().map(|lock| &*lock.name).collect::<Vec<_>>(), ["wrong/rlock", "wrong/rwlock"]);
}

/// Its waiters have an order that is kept by each client's own clock.
#[tokio::test]
async fn a_fair_lock_that_is_waited_for_is_refused_and_stays_as_it_is() {
    let (mutexes, locks) = (mutexes().await, read_write().await);
    let mut direct = direct(REDIS.port()).await;
    let held = mutexes.mutex("fair/ours").lock().await.unwrap();
    for name in ["held", "free", "ours"] {
        let _: () = run(&mut direct, &format!("RPUSH redisson_lock_queue:{{fair/{name}}} {THREAD}")).await;
    }
    let _: () = run(&mut direct, &format!("HSET fair/held {THREAD} 1")).await;
    for name in ["held", "free", "ours"] {
        let error = mutexes.mutex(format!("fair/{name}")).lock().await.unwrap_err();
        assert!(matches!(&error, Error::Engine { temporary: false, .. }), "{error}");
        let queue = format!("'redisson_lock_queue:{{fair/{name}}}'");
        assert!(error.to_string().contains("an RFairLock") && error.to_string().contains(&queue), "{error}");
    }
    let error = locks.rwlock("fair/free").read().await.unwrap_err();
    assert!(error.to_string().contains("an RFairLock"), "{error}");
    assert_eq!(run::<Vec<String>>(&mut direct, "KEYS fair/*").await.len(), 2, "nothing is taken");
    held.release().await.expect("what is held is held on");
}

async fn dumps(direct: &mut MultiplexedConnection) -> Vec<Vec<u8>> {
    let mut dumps = Vec::new();
    for name in ["string", "list", "hash", "rlock", "rwlock"] {
        dumps.push(run(direct, &format!("DUMP wrong/{name}")).await);
    }
    dumps
}

#[tokio::test]
async fn readers_and_permits_of_an_rlock_are_refused_with_the_way_out() {
    let keeper = mutexes().await;
    for (error, instead) in [
        (keeper.rwlock("refused").read().await.unwrap_err(), "queue"),
        (keeper.semaphore("refused", 2).acquire(1).await.unwrap_err(), "queue"),
        (read_write().await.semaphore("refused", 2).acquire(1).await.unwrap_err(), "queue"),
    ] {
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(instead), "{error}");
    }
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_message_of_a_release_and_not_before() {
    let redis = Redis::start();
    let keeper = bare_keeper(&format!("{}?style=redisson", redis.url())).await;
    let mut direct = direct(redis.port()).await;
    let _: () = run(&mut direct, &format!("HSET message {THREAD} 1")).await;
    let _: () = run(&mut direct, "PEXPIRE message 120000").await;
    let waiting = tokio::spawn({
        let mutex = keeper.mutex("message");
        async move { mutex.lock().await.unwrap() }
    });
    until_subscribed(&direct, "redisson_lock__channel:{message}").await;
    let before = calls(&mut direct).await;
    // Nobody polls.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let scripts = calls(&mut direct).await["evalsha"] - before["evalsha"];
    assert!(scripts <= 2, "the attempt after the subscription, at most: {scripts}");
    let _: () = run(&mut direct, "DEL message").await;
    assert!(!waiting.is_finished());
    let freed = Instant::now();
    let _: () = run(&mut direct, "PUBLISH redisson_lock__channel:{message} 0").await;
    let guard = soon("it is woken", waiting).await.unwrap();
    assert!(freed.elapsed() < Duration::from_secs(5), "{:?}", freed.elapsed());
    guard.release().await.unwrap();
    until("the subscription ends when nobody waits", async || {
        let (_, count): (String, u64) =
            run(&mut direct.clone(), "PUBSUB NUMSUB redisson_lock__channel:{message}").await;
        count == 0
    })
    .await;
}

#[tokio::test]
async fn a_release_while_the_subscription_is_lost_is_noticed() {
    let redis = Redis::start();
    let keeper = bare_keeper(&format!("{}?style=redisson", redis.url())).await;
    let mut direct = direct(redis.port()).await;
    let _: () = run(&mut direct, &format!("HSET lost {THREAD} 1")).await;
    let _: () = run(&mut direct, "PEXPIRE lost 120000").await;
    let waiting = tokio::spawn({
        let mutex = keeper.mutex("lost");
        async move { mutex.lock().await.unwrap() }
    });
    until_subscribed(&direct, "redisson_lock__channel:{lost}").await;
    let _: () = run(&mut direct, "DEL lost").await;
    let _: u64 = run(&mut direct, "CLIENT KILL TYPE pubsub").await;
    soon("it looks after it has subscribed again", waiting).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn of_many_waiters_the_message_lets_one_try_and_a_waiter_that_gives_up_passes_it_on() {
    let redis = Redis::start();
    let keeper = bare_keeper(&format!("{}?style=redisson", redis.url())).await;
    let mut direct = direct(redis.port()).await;
    let guard = keeper.mutex("many").lock().await.unwrap();
    let (sender, mut granted) = tokio::sync::mpsc::unbounded_channel();
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let (mutex, granted) = (keeper.mutex("many"), sender.clone());
            tokio::spawn(async move { granted.send(mutex.lock().await.unwrap()).unwrap() })
        })
        .collect();
    until_subscribed(&direct, "redisson_lock__channel:{many}").await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let before = calls(&mut direct).await["evalsha"];
    guard.release().await.unwrap();
    let guard = soon("one gets it", granted.recv()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let scripts = calls(&mut direct).await["evalsha"] - before;
    assert!(scripts <= 3, "a leave and an attempt: {scripts}");
    // Those that would be first give up at the moment of the release.
    let release = tokio::spawn(guard.release());
    waiting.iter().take(15).for_each(|waiting| waiting.abort());
    release.await.unwrap().unwrap();
    for _ in 15..20 {
        let guard = soon("the next one gets it", granted.recv()).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn what_another_client_deletes_is_lost_at_the_next_renewal_and_its_hold_is_not_touched() {
    let url = format!("{}?style=redisson", REDIS.url());
    let keeper = try_keeper(&url, Duration::from_millis(600)).await.unwrap();
    let mut direct = direct(REDIS.port()).await;
    let guard = keeper.mutex("deleted").lock().await.unwrap();
    let _: () = run(&mut direct, "DEL lockkeeper/deleted").await;
    let _: () = run(&mut direct, &format!("HSET lockkeeper/deleted {THREAD} 1")).await;
    assert!(soon("the loss is told", guard.lost()).await.is_lost());
    assert_eq!(guard.state(), State::Lost);
    assert!(guard.release().await.is_err());
    let count: String = run(&mut direct, &format!("HGET lockkeeper/deleted {THREAD}")).await;
    assert_eq!(count, "1");
}

#[tokio::test]
async fn another_clients_holders_are_shown_and_can_be_evicted() {
    let (mutexes, locks) = (mutexes().await, read_write().await);
    let mut direct = direct(REDIS.port()).await;
    let _: () = run(&mut direct, &format!("HSET shown/rlock {THREAD} 3")).await;
    let _: () = run(&mut direct, "PEXPIRE shown/rlock 60000").await;
    let shown = mutexes.inspect("shown/rlock").await.unwrap();
    let claim = &shown[0].claims[0];
    assert!(claim.foreign && claim.token.is_none());
    let text = &claim.holder.text;
    for part in ["2f0c5d9e-7a31-4e0b-9c11-0a1b2c3d4e5f", "thread 31", "hold count 3"] {
        assert!(text.contains(part), "{text}");
    }
    let waiting = tokio::spawn({
        let mutex = mutexes.mutex("shown/rlock");
        async move { mutex.lock().await.unwrap() }
    });
    until_subscribed(&direct, "redisson_lock__channel:{shown/rlock}").await;
    assert!(mutexes.evict("shown/rlock", &claim.id).await.unwrap());
    soon("the message wakes it", waiting).await.unwrap().release().await.unwrap();

    let _: () = run(&mut direct, &format!("HSET shown/rw mode read {THREAD} 2")).await;
    let _: () = run(&mut direct, "PEXPIRE shown/rw 60000").await;
    for hold in [1, 2] {
        let key = format!("{{shown/rw}}:{THREAD}:rwlock_timeout:{hold}");
        let _: () = run(&mut direct, &format!("SET {key} 1 PX 60000")).await;
    }
    let reader = locks.rwlock("shown/rw").read().await.unwrap();
    let shown = locks.inspect("shown/rw").await.unwrap();
    assert_eq!(shown[0].claims.iter().filter(|claim| claim.foreign).count(), 1);
    let foreign = shown[0].claims.iter().find(|claim| claim.foreign).unwrap();
    assert!(locks.evict("shown/rw", &foreign.id).await.unwrap());
    assert_eq!(guard_count(&locks).await, 1, "ours is still there");
    reader.release().await.unwrap();
    let keys: Vec<String> = run(&mut direct, "KEYS *shown/rw*").await;
    assert!(keys.is_empty(), "{keys:?}");
}

async fn guard_count(keeper: &Keeper) -> usize {
    keeper.inspect("shown/rw").await.unwrap()[0].claims.len()
}

#[tokio::test]
async fn tokens_go_on_from_a_fenced_locks_and_raise_it() {
    let (keeper, mut direct) = (mutexes().await, direct(REDIS.port()).await);
    let fence = "redisson_lock_token:{fence}";
    keeper.mutex("fence").lock().await.unwrap().release().await.unwrap();
    let none: Option<u64> = run(&mut direct, &format!("GET {fence}")).await;
    assert_eq!(none, None, "an RLock has no counter");
    // Far ahead of the server's clock.
    let _: () = run(&mut direct, &format!("SET {fence} 4000000000000000")).await;
    let guard = keeper.mutex("fence").lock().await.unwrap();
    assert_eq!(guard.token().unwrap().0, 4_000_000_000_000_001);
    guard.release().await.unwrap();
    let theirs: u64 = run(&mut direct, &format!("INCR {fence}")).await;
    assert_eq!(theirs, 4_000_000_000_000_002);
    assert_eq!(keeper.mutex("fence").lock().await.unwrap().token().unwrap().0, 4_000_000_000_000_003);
    let fenced = bare_keeper(&format!("{}?style=redisson&fenced=true", REDIS.url())).await;
    let token = fenced.mutex("begun").lock().await.unwrap().token().unwrap().0;
    let begun: u64 = run(&mut direct, "GET redisson_lock_token:{begun}").await;
    assert_eq!(begun, token);
}

#[tokio::test]
async fn an_uncontended_pair_costs_two_requests() {
    let redis = Redis::start();
    let mut direct = direct(redis.port()).await;
    for style in ["redisson", "redisson-rw"] {
        let keeper = bare_keeper(&format!("{}?style={style}", redis.url())).await;
        keeper.mutex("pair").lock().await.unwrap().release().await.unwrap();
        let before = calls(&mut direct).await;
        for _ in 0..100 {
            keeper.mutex("pair").lock().await.unwrap().release().await.unwrap();
        }
        let after = calls(&mut direct).await;
        assert_eq!(after["evalsha"] - before["evalsha"], 200, "{style}");
    }
}
