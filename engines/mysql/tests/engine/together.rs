//! Many tasks of one keeper, whose requests travel together, and claims that move from the lock's row to the queue.

#[path = "../../../../crates/conformance/cases/leaving.rs"]
mod leaving;

use leaving::until_idle;
use lockkeeper::{Keeper, State};
use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

const STYLES: [&str; 2] = ["queue", "row"];

async fn keeper(server: &MariaDb, style: &str) -> Keeper {
    lockkeeper::connect(format!("{}?style={style}", server.url())).await.expect(style)
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_go_away_leave_nothing_behind() {
    let server = MariaDb::start();
    for style in STYLES {
        let keeper = keeper(&server, style).await;
        leaving::tasks_that_go_away_leave_nothing_behind(&keeper, 5, Duration::from_millis(2)).await;
        keeper.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_that_others_want_too_are_told_from_those_that_nobody_wants() {
    let server = MariaDb::start();
    for style in STYLES {
        let keepers = [keeper(&server, style).await, keeper(&server, style).await];
        let mut guards = Vec::new();
        for number in 0..10 {
            guards.push(keepers[0].mutex(format!("mixed/{}", number * 3)).lock().await.expect("a lock"));
        }
        let tries = (0..30).map(|number| {
            let lock = keepers[1].mutex(format!("mixed/{number}"));
            tokio::spawn(async move { lock.try_lock().await.expect("an answer") })
        });
        let tries: Vec<_> = tries.collect();
        for (number, attempt) in tries.into_iter().enumerate() {
            assert_eq!(attempt.await.expect("a task").is_none(), number % 3 == 0, "{style}: mixed/{number}");
        }
        for guard in guards {
            guard.release().await.expect(style);
        }
        until_idle(&keepers[0]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_at_a_time_holds_with_growing_tokens_while_the_claim_moves() {
    let server = MariaDb::start();
    let (held, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let keeper = keeper(&server, "queue").await;
        let (held, last) = (Arc::clone(&held), Arc::clone(&last));
        tasks.push(tokio::spawn(async move {
            for turn in 0..60 {
                let guard = keeper.mutex("moving").lock().await.expect("a lock");
                assert!(!held.swap(true, SeqCst), "two hold");
                let token = guard.token().expect("a token").0;
                assert!(last.swap(token, SeqCst) < token, "a token went back");
                held.store(false, SeqCst);
                guard.release().await.expect("a release");
                // Now and then nobody else is there.
                tokio::time::sleep(Duration::from_millis(turn % 4)).await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    until_idle(&keeper(&server, "queue").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_finds_claims_in_the_row_and_in_the_queue() {
    let server = MariaDb::start();
    let connect = || lockkeeper::Connect::to(server.url()).ttl(Duration::from_secs(2)).connect();
    let keeper = connect().await.expect("a keeper");
    let alone = keeper.mutex("alone").lock().await.expect("a lock");
    let wanted = keeper.mutex("wanted").lock().await.expect("a lock");
    let other = connect().await.expect("a keeper");
    assert!(other.mutex("wanted").try_lock().await.expect("an answer").is_none());
    // Longer than the TTL.
    tokio::time::sleep(Duration::from_secs(5)).await;
    for name in ["alone", "wanted"] {
        assert!(other.mutex(name).try_lock().await.expect("an answer").is_none(), "{name}");
    }
    alone.release().await.expect("it was kept");
    wanted.release().await.expect("it was kept");
}

/// Joins and leaves take the lock's row one after the other, each with a commit of its own. Those that hold or wait must not
/// depend on how long that takes.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_do_not_wait_for_those_that_have_the_row() {
    const TTL: Duration = Duration::from_secs(2);
    let server = MariaDb::start();
    let connect = || lockkeeper::Connect::to(server.url()).ttl(TTL).connect();
    let (keeper, other) = (connect().await.expect("a keeper"), connect().await.expect("a keeper"));
    let held = keeper.mutex("busy").lock().await.expect("a lock");
    let waiting = tokio::spawn(async move { other.mutex("busy").lock().await });
    let connect = || async { Conn::new(Opts::from_url(&server.url()).expect("a URL")).await };
    let mut watcher = connect().await.expect("a connection");
    let mut ids = async || {
        let ids = "SELECT id FROM lockkeeper_claims WHERE expires_at > SYSDATE(6) ORDER BY place";
        watcher.query::<String, _>(ids).await.expect("the queue")
    };
    let before = loop {
        let ids = ids().await;
        if ids.len() == 2 {
            break ids;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let mut joining = connect().await.expect("a connection");
    joining.query_drop("START TRANSACTION").await.expect("a transaction");
    let take = "SELECT name FROM lockkeeper_locks WHERE name = 'lockkeeper/busy' FOR UPDATE";
    assert!(joining.query_first::<Vec<u8>, _>(take).await.expect("the row").is_some());
    tokio::time::sleep(TTL * 3).await;
    assert_eq!((held.state(), ids().await), (State::Held, before));
    joining.query_drop("ROLLBACK").await.expect("the end");
    held.release().await.expect("it was kept");
    waiting.await.expect("no panic").expect("its turn").release().await.expect("it was kept");
}

/// In the lock's row, and in the queue, to which a claim moves when another one comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_the_server_calls_expired_is_lost_and_frees_nothing() {
    const LIMIT: Duration = Duration::from_secs(30);
    let server = MariaDb::start();
    let connect = || lockkeeper::Connect::to(server.url()).ttl(Duration::from_secs(2)).connect();
    let (keeper, other) = (connect().await.expect("a keeper"), connect().await.expect("a keeper"));
    let mut sql = Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a connection");
    for (table, is_wanted) in [("lockkeeper_locks", false), ("lockkeeper_claims", true)] {
        let guard = keeper.mutex(table).lock().await.expect("a lock");
        if is_wanted {
            assert!(other.mutex(table).try_lock().await.expect("an answer").is_none());
            // From now on the keeper knows that the claim stands in the queue.
            let expiry = "SELECT MIN(CAST(expires_at AS CHAR)) FROM lockkeeper_claims";
            let first: Option<String> = sql.query_first(expiry).await.expect("a time");
            while sql.query_first::<String, _>(expiry).await.expect("a time") == first {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        let expire = format!("UPDATE {table} SET expires_at = SYSDATE(6) - INTERVAL 1 SECOND WHERE id <> ''");
        sql.query_drop(expire).await.expect("it is there");
        assert!(sql.affected_rows() > 0, "{table}");
        tokio::time::timeout(LIMIT, guard.lost()).await.expect("it is lost");
        let next = other.mutex(table).lock().await.expect("it is free");
        assert!(guard.release().await.is_err());
        assert!(
            keeper.mutex(table).try_lock().await.expect("an answer").is_none(),
            "{table}: freed by another"
        );
        assert_eq!(next.state(), State::Held);
        next.release().await.expect("it is held");
    }
}
