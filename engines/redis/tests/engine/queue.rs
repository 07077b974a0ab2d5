//! The style 'queue' on one server: the whole contract of the queue, and what it costs.

use crate::common::{calls, direct, engine, keeper, soon, try_keeper, until, waiters};
use lockkeeper_core::{Demand, Error, State};
use lockkeeper_testkit::{Proxy, Redis};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

static REDIS: LazyLock<Redis> = LazyLock::new(Redis::start);

fn url() -> String {
    REDIS.url()
}

#[tokio::test]
async fn a_mutex_has_one_holder_and_its_token_grows() {
    let (one, other) = (keeper(&url()).await, keeper(&url()).await);
    let mut last = 0;
    for _ in 0..20 {
        let guard = one.mutex("grows").lock().await.unwrap();
        assert!(other.mutex("grows").try_lock().await.unwrap().is_none());
        let token = guard.token().unwrap().0;
        assert!(token > last);
        last = token;
        guard.release().await.unwrap();
    }
    assert!(other.mutex("grows").lock().await.unwrap().token().unwrap().0 > last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_first_is_served_first() {
    let (one, other) = (keeper(&url()).await, keeper(&url()).await);
    let guard = one.mutex("order").lock().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..20 {
        let keeper = if number % 2 == 0 { one.clone() } else { other.clone() };
        let served = Arc::clone(&served);
        tasks.push(tokio::spawn(async move {
            let guard = keeper.mutex("order").lock().await.unwrap();
            served.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        until("the claim waits", async || waiters(&one, "order").await == number + 1).await;
    }
    guard.release().await.unwrap();
    for task in tasks {
        soon("everybody is served", task).await.unwrap();
    }
    assert_eq!(*served.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[tokio::test]
async fn readers_share_writers_do_not_and_a_writer_may_become_a_reader() {
    let keeper = keeper(&url()).await;
    let lock = keeper.rwlock("stock");
    let (first, second) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    assert!(lock.try_write().await.unwrap().is_none());
    first.release().await.unwrap();
    let writer = tokio::spawn({
        let lock = keeper.rwlock("stock");
        async move { lock.write().await.unwrap() }
    });
    until("the writer waits", async || waiters(&keeper, "stock").await == 1).await;
    assert!(lock.try_read().await.unwrap().is_none(), "a reader must not overtake a waiting writer");
    second.release().await.unwrap();
    let writer = soon("the writer holds", writer).await.unwrap();
    let reader = tokio::spawn({
        let lock = keeper.rwlock("stock");
        async move { lock.read().await.unwrap() }
    });
    until("the reader waits", async || waiters(&keeper, "stock").await == 1).await;
    writer.downgrade().await.unwrap();
    let reader = soon("a downgrade lets readers in", reader).await.unwrap();
    assert_eq!(writer.state(), State::Held);
    assert!(reader.token().unwrap() > writer.token().unwrap());
}

#[tokio::test]
async fn permits_are_counted_and_the_shape_is_agreed_on() {
    let keeper = keeper(&url()).await;
    let gpu = keeper.semaphore("gpu", 4);
    let (two, one) = (gpu.acquire(2).await.unwrap(), gpu.acquire(1).await.unwrap());
    assert!(gpu.try_acquire(2).await.unwrap().is_none());
    let last = gpu.try_acquire(1).await.unwrap().unwrap();
    for refused in [
        keeper.mutex("gpu").try_lock().await.unwrap_err(),
        keeper.semaphore("gpu", 5).try_acquire(1).await.unwrap_err(),
    ] {
        assert!(matches!(refused, Error::Mismatch { .. }), "{refused}");
    }
    drop((two, one, last));
    until("all have left", async || keeper.inspect("gpu").await.unwrap().is_empty()).await;
    keeper.mutex("gpu").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_departure_wakes_all_who_fit_and_nobody_else() {
    let keeper = keeper(&url()).await;
    let all = keeper.semaphore("places", 3).acquire(3).await.unwrap();
    let waiting = |want| {
        let places = keeper.semaphore("places", 3);
        tokio::spawn(async move { places.acquire(want).await.unwrap() })
    };
    let mut tasks = Vec::new();
    for (index, want) in [1, 2, 1].into_iter().enumerate() {
        tasks.push(waiting(want));
        until("it waits", async || waiters(&keeper, "places").await == index + 1).await;
    }
    all.release().await.unwrap();
    let third = tasks.pop().unwrap();
    let mut held = Vec::new();
    for task in tasks {
        held.push(soon("the first two fit", task).await.unwrap());
    }
    assert!(!third.is_finished());
    drop(held.remove(0));
    drop(soon("the third fits", third).await.unwrap());
}

#[tokio::test]
async fn a_dropped_wait_leaves_the_queue() {
    let keeper = keeper(&url()).await;
    let guard = keeper.mutex("dropped").lock().await.unwrap();
    assert!(keeper.mutex("dropped").lock_within(Duration::from_millis(20)).await.unwrap().is_none());
    let wait = tokio::spawn({
        let mutex = keeper.mutex("dropped");
        async move { drop(mutex.lock().await) }
    });
    until("it waits", async || waiters(&keeper, "dropped").await == 1).await;
    wait.abort();
    until("it has left", async || waiters(&keeper, "dropped").await == 0).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_dead_holder_frees_the_lock_within_its_ttl_and_stays_dead() {
    let ttl = Duration::from_secs(1);
    let proxy = Proxy::start(([127, 0, 0, 1], REDIS.port()).into());
    let dead = try_keeper(&format!("redis://{}", proxy.addr()), ttl).await.unwrap();
    let keeper = try_keeper(&url(), ttl).await.unwrap();
    let guard = dead.mutex("orphan").lock().await.unwrap();
    let token = guard.token().unwrap();
    proxy.cut();
    let next = soon("the lock is free", keeper.mutex("orphan").lock()).await.unwrap();
    assert_eq!(guard.state(), State::Lost, "who is cut off knows it before the next one holds");
    assert!(next.token().unwrap() > token);
    proxy.heal();
    assert!(guard.release().await.is_err());
    assert_eq!(next.state(), State::Held);
    assert_eq!(keeper.inspect("orphan").await.unwrap()[0].claims.len(), 1);
}

#[tokio::test]
async fn what_is_listed_is_what_is_there() {
    let keeper = keeper(&url()).await;
    let guard = keeper.mutex("seen/{odd}%*").lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = keeper.mutex("seen/{odd}%*");
        async move { mutex.lock().await }
    });
    until("it waits", async || waiters(&keeper, "seen/").await == 1).await;
    let locks = keeper.inspect("seen/").await.unwrap();
    assert_eq!(locks.len(), 1);
    assert_eq!(locks[0].name, "seen/{odd}%*");
    let holder = locks[0].holders().next().unwrap();
    assert_eq!((holder.token, holder.demand), (Some(guard.token().unwrap()), Demand::Exclusive));
    assert!(holder.ttl_left.unwrap() <= keeper.ttl() && holder.age.unwrap() < keeper.ttl());
    assert_eq!(holder.holder.pid, std::process::id());
    assert!(keeper.inspect("seem").await.unwrap().is_empty());
    let waiter = locks[0].waiters().next().unwrap().id.clone();
    assert!(keeper.evict("seen/{odd}%*", &waiter).await.unwrap());
    assert!(!keeper.evict("seen/{odd}%*", &waiter).await.unwrap());
    let is_back = async || {
        let locks = keeper.inspect("seen/").await.unwrap();
        locks[0].waiters().any(|other| other.id != waiter)
    };
    until("an evicted waiter joins again", is_back).await;
    waiting.abort();
}

#[tokio::test]
async fn an_idle_lock_leaves_nothing_but_the_last_token_of_the_server() {
    let redis = Redis::start();
    let keeper = keeper(&redis.url()).await;
    let mut last = 0;
    for somebody_else_tries in [true, false] {
        let guard = keeper.mutex("idle").lock().await.unwrap();
        last = guard.token().unwrap().0;
        if somebody_else_tries {
            assert!(keeper.mutex("idle").try_lock().await.unwrap().is_none());
        }
        guard.release().await.unwrap();
    }
    let mut direct = direct(redis.port()).await;
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut direct).await.unwrap();
    assert_eq!(keys, ["lockkeeper:token"]);
    let token: u64 = redis::cmd("GET").arg(&keys[0]).query_async(&mut direct).await.unwrap();
    assert_eq!(token, last);
}

#[tokio::test]
async fn scripts_are_loaded_again_when_the_server_has_forgotten_them() {
    let redis = Redis::start();
    let keeper = try_keeper(&redis.url(), Duration::from_secs(2)).await.unwrap();
    let mut direct = direct(redis.port()).await;
    let guards = [keeper.mutex("a").lock().await.unwrap(), keeper.mutex("b").lock().await.unwrap()];
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut direct).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await; // two TTLs: only renewals can keep the locks
    for guard in guards {
        assert_eq!(guard.state(), State::Held);
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut direct).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_lost_reply_finds_its_own_claim_again() {
    let redis = Redis::start();
    let proxy = Proxy::start(([127, 0, 0, 1], redis.port()).into());
    let ttl = Duration::from_secs(4);
    let keeper = try_keeper(&format!("redis://{}", proxy.addr()), ttl).await.unwrap();
    keeper.mutex("warm").lock().await.unwrap().release().await.unwrap(); // the server knows the scripts
    proxy.cut_replies();
    let lock = tokio::spawn({
        let mutex = keeper.mutex("ambiguous");
        async move { mutex.lock().await }
    });
    let watcher = crate::common::keeper(&redis.url()).await;
    until("the claim has arrived", async || !watcher.inspect("ambiguous").await.unwrap().is_empty()).await;
    proxy.reset();
    proxy.heal();
    let guard = soon("the retry finds its claim", lock).await.unwrap().unwrap();
    let locks = watcher.inspect("ambiguous").await.unwrap();
    assert_eq!(locks[0].claims.len(), 1);
    assert_eq!(locks[0].claims[0].token, Some(guard.token().unwrap()));
}

#[tokio::test]
async fn a_cut_connection_comes_back_and_a_missed_message_is_found() {
    let redis = Redis::start();
    let proxy = Proxy::start(([127, 0, 0, 1], redis.port()).into());
    let keeper = keeper(&format!("redis://{}", proxy.addr())).await;
    let other = crate::common::keeper(&redis.url()).await;
    let guard = other.mutex("missed").lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = keeper.mutex("missed");
        async move { mutex.lock().await }
    });
    until("it waits", async || waiters(&other, "missed").await == 1).await;
    proxy.cut();
    guard.release().await.unwrap();
    proxy.reset();
    proxy.heal();
    drop(soon("the grant is found", waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_server_that_forgot_everything_loses_the_lock_at_once() {
    let redis = Redis::start();
    let ttl = Duration::from_secs(3);
    let keeper = try_keeper(&redis.url(), ttl).await.unwrap();
    let guard = keeper.mutex("forgotten").lock().await.unwrap();
    let token = guard.token().unwrap();
    redis.kill();
    redis.restart();
    soon("the loss is seen", guard.lost()).await;
    let guard = soon("it can be had again", keeper.mutex("forgotten").lock()).await.unwrap();
    assert!(guard.token().unwrap() > token, "tokens grow across a restart");
}

#[tokio::test]
async fn a_waiter_of_a_server_that_forgot_everything_joins_again_and_holds_in_the_end() {
    let redis = Redis::start();
    let ttl = Duration::from_secs(3);
    let holder = try_keeper(&redis.url(), ttl).await.unwrap();
    let waiter = try_keeper(&redis.url(), ttl).await.unwrap();
    let guard = holder.mutex("forgotten").lock().await.unwrap();
    let token = guard.token().unwrap();
    let waiting = tokio::spawn(async move { waiter.mutex("forgotten").lock().await });
    until("it waits", async || waiters(&holder, "forgotten").await == 1).await;
    redis.kill();
    redis.restart();
    let granted = soon("the wait goes on until it holds", waiting).await.unwrap().unwrap();
    soon("the holder learns of its loss", guard.lost()).await;
    assert!(granted.token().unwrap() > token, "tokens grow across a restart");
    assert_eq!(granted.state(), State::Held);
}

#[tokio::test]
async fn a_replica_is_refused() {
    let master = Redis::start();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let error = engine(&replica.url(), Duration::from_secs(10)).await.err().unwrap().to_string();
    assert!(error.contains("master"), "{error}");
}

#[tokio::test]
async fn a_keeper_survives_the_runtime_it_was_made_on() {
    let url = url();
    let keeper = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { keeper(&url).await })
    })
    .join()
    .unwrap();
    let guard =
        soon("the caller's runtime has a connection of its own", keeper.mutex("moved").lock()).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn an_uncontended_pair_costs_two_requests() {
    let redis = Redis::start();
    let keeper = keeper(&redis.url()).await;
    let mut direct = direct(redis.port()).await;
    keeper.mutex("pair").lock().await.unwrap().release().await.unwrap();
    let before = calls(&mut direct).await;
    for _ in 0..100 {
        keeper.mutex("pair").lock().await.unwrap().release().await.unwrap();
    }
    let after = calls(&mut direct).await;
    assert_eq!(after["evalsha"] - before["evalsha"], 200);
    assert_eq!(after.get("eval"), before.get("eval"));
}
