//! TLS and access lists, Sentinel, Cluster, and what a failover can break.

use crate::common::{direct, engine, keeper, soon, try_keeper, until};
use lockkeeper_core::{Error, State};
use lockkeeper_testkit::{Proxy, Redis, RedisCluster, Sentinel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);

#[tokio::test]
async fn locks_work_over_tls_with_a_user_of_its_own() {
    let redis = Redis::start_tls();
    let url = format!("{}?ca={}", redis.url(), redis.ca().display());
    for url in [url.clone(), format!("{url}&style=plain")] {
        let keeper = keeper(&url).await;
        let guard = keeper.mutex("secret").lock().await.unwrap();
        guard.release().await.unwrap();
    }
    let wrong = url.replace(redis.password(), "wrong");
    let error = engine(&wrong, TTL).await.err().unwrap();
    assert!(!error.is_temporary(), "a wrong password does not pass: {error}");
    assert!(!error.to_string().contains("wrong"), "{error}");
    assert!(engine(&redis.url(), TTL).await.is_err(), "an unknown authority is refused");
}

/// The permissions that the engine's page names are enough.
#[tokio::test]
async fn a_user_with_just_the_named_permissions_can_lock() {
    let redis = Redis::start();
    let mut direct = direct(redis.port()).await;
    let page = include_str!("../../README.md");
    let (_, rules) = page.split_once("ACL SETUSER keeper ").expect("the page names the rules");
    let (rules, _) = rules.split_once("```").expect("the rules end");
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("keeper");
    for rule in rules.split_whitespace().filter(|word| *word != "\\") {
        command.arg(rule);
    }
    let _: () = command.query_async(&mut direct).await.unwrap();
    for style in ["queue", "plain", "redisson", "redisson-rw"] {
        let url = format!("redis://keeper:secret@127.0.0.1:{}?style={style}", redis.port());
        let keeper = try_keeper(&url, Duration::from_secs(2)).await.unwrap();
        let guard = keeper.mutex(style).lock().await.unwrap();
        let waiting = tokio::spawn({
            let mutex = keeper.mutex(style);
            async move { mutex.lock().await }
        });
        tokio::time::sleep(Duration::from_secs(2)).await; // renewals, too
        assert_eq!(keeper.inspect("").await.unwrap().len(), 1);
        guard.release().await.unwrap();
        let guard = soon("the next one holds", waiting).await.unwrap().unwrap();
        let claim = keeper.inspect("").await.unwrap()[0].claims[0].id.clone();
        assert!(keeper.evict(style, &claim).await.unwrap());
        drop(guard);
    }
}

/// Locks and unlocks until it has enough tokens or is aborted; the tokens of all workers in the order of their grants.
async fn work(keeper: lockkeeper_core::Keeper, tokens: Arc<Mutex<Vec<u64>>>, until_tokens: usize) {
    loop {
        // While the master changes there may be errors: that is what they are for.
        let Ok(guard) = keeper.mutex("failover").lock().await else { continue };
        if let Ok(token) = guard.token() {
            let mut tokens = tokens.lock().unwrap();
            tokens.push(token.0);
            if tokens.len() >= until_tokens {
                return;
            }
        }
        let _ = guard.release().await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_goes_on_through_a_failover_and_tokens_grow() {
    let sentinel = Sentinel::start();
    let ttl = Duration::from_secs(3);
    let tokens = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let keeper = try_keeper(&sentinel.url(), ttl).await.unwrap();
        tasks.push(tokio::spawn(work(keeper, Arc::clone(&tokens), usize::MAX)));
    }
    let count = || tokens.lock().unwrap().len();
    until("they work", async || count() > 50).await;
    let (before, master) = (count(), sentinel.master_port());
    let sentinel = tokio::task::spawn_blocking(move || {
        assert_ne!(sentinel.failover(), master);
        sentinel
    })
    .await
    .unwrap();
    until("they work on", async || count() > before + 100).await;
    let after = direct(sentinel.master_port()).await;
    until("they work at the new master", async || {
        let mut keys = redis::cmd("KEYS");
        let keys: Vec<String> = keys.arg("*failover*").query_async(&mut after.clone()).await.unwrap();
        !keys.is_empty()
    })
    .await;
    tasks.iter().for_each(|task| task.abort());
    let tokens = tokens.lock().unwrap();
    assert!(tokens.is_sorted_by(|one, next| one < next), "tokens grow across the failover");
}

/// The known danger of asynchronous replication. This must break: two holders at once. The token still grows.
#[tokio::test]
async fn a_replica_promoted_while_behind_gives_the_lock_away_but_its_token_grows() {
    let master = Redis::start();
    let proxy = Proxy::start(([127, 0, 0, 1], master.port()).into());
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &proxy.addr().port().to_string()]);
    let mut at_replica = direct(replica.port()).await;
    in_step(&mut at_replica).await;
    proxy.cut();
    let old = keeper(&master.url()).await;
    let guard = old.mutex("split").lock().await.unwrap();
    master.kill();
    let _: () = redis::cmd("REPLICAOF").arg("NO").arg("ONE").query_async(&mut at_replica).await.unwrap();
    let new = keeper(&replica.url()).await;
    let second = new.mutex("split").try_lock().await.unwrap().expect("the promoted replica knows of nobody");
    assert_eq!(
        (guard.state(), second.state()),
        (State::Held, State::Held),
        "two holders: the danger is real"
    );
    assert!(second.token().unwrap() > guard.token().unwrap(), "a fenced resource is safe all the same");
}

#[tokio::test]
async fn a_lock_that_too_few_replicas_have_is_not_granted() {
    let master = Redis::start();
    let proxy = Proxy::start(([127, 0, 0, 1], master.port()).into());
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &proxy.addr().port().to_string()]);
    let mut at_replica = direct(replica.port()).await;
    in_step(&mut at_replica).await;
    for style in ["queue", "plain", "redisson", "redisson-rw"] {
        let url = format!("{}?wait_replicas=1&style={style}", master.url());
        let keeper = try_keeper(&url, Duration::from_secs(8)).await.unwrap();
        let guard = soon("a replica has it", keeper.mutex(style).lock()).await.unwrap();
        let found: Vec<String> =
            redis::cmd("KEYS").arg(format!("*{style}*")).query_async(&mut at_replica).await.unwrap();
        assert!(!found.is_empty(), "the grant waited for the replica");
        guard.release().await.unwrap();
        proxy.cut();
        let error = keeper.mutex(style).try_lock().await.expect_err("no replica confirms");
        assert!(matches!(error, Error::Engine { temporary: true, .. }), "{error}");
        proxy.heal();
        until("what was withdrawn is gone", async || {
            keeper.inspect("").await.is_ok_and(|locks| locks.is_empty())
        })
        .await;
        soon("it works again", async { while keeper.mutex(style).lock().await.is_err() {} }).await;
    }
}

async fn in_step(replica: &mut redis::aio::MultiplexedConnection) {
    let replica = replica.clone();
    until("the replica is in step", async || {
        let info: String =
            redis::cmd("INFO").arg("replication").query_async(&mut replica.clone()).await.unwrap();
        info.contains("master_link_status:up")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_spreads_locks_and_a_dead_member_takes_only_its_own_along() {
    let cluster = RedisCluster::start();
    let ttl = Duration::from_secs(2);
    let keeper = try_keeper(&cluster.url(), ttl).await.unwrap();
    let mut guards = Vec::new();
    for number in 0..30 {
        guards.push(keeper.mutex(format!("spread/{number}")).lock().await.unwrap());
    }
    for server in cluster.servers() {
        let mut member = direct(server.port()).await;
        let keys: u64 = redis::cmd("DBSIZE").query_async(&mut member).await.unwrap();
        assert!(keys > 0, "every member has some");
    }
    assert_eq!(keeper.inspect("spread/").await.unwrap().len(), 30);
    tokio::time::sleep(2 * ttl).await; // renewals reach every member
    assert!(guards.iter().all(|guard| guard.state() == State::Held));
    drop(guards);
    until("all are freed", async || keeper.inspect("spread/").await.unwrap().is_empty()).await;
}
