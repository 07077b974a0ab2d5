//! What the engine promises beyond the suite: commit order, cheap waits, tokens after cleaning, refused servers.

use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use std::collections::BTreeMap;
use std::time::Duration;

async fn client(server: &MariaDb) -> Conn {
    let mut conn = Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a connection");
    conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        .await
        .expect("an isolation level");
    conn
}

const JOIN: &str =
    "CALL lockkeeper_join('order', ?, 'exclusive', 1000000000, 1000000000, 0, '', 'none', 60000000)";

/// Law 1, hammered: nobody leaves, so the one with n claims ahead by place must have been told of all n.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_appears_ahead_of_a_place_already_handed_out() {
    let server = MariaDb::start();
    lockkeeper::connect(server.url()).await.expect("a keeper").close().await;
    let mut joiners = Vec::new();
    for joiner in 0..8 {
        let mut conn = client(&server).await;
        joiners.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            for turn in 0..40 {
                let id = format!("{joiner:016x}{turn:016x}");
                let row: Option<(i64, i64, Option<i64>, Option<String>)> =
                    conn.exec_first(JOIN, (id,)).await.expect("a place");
                let (place, ahead, _, _) = row.expect("a row");
                seen.push((place, ahead));
            }
            seen
        }));
    }
    let mut by_place = BTreeMap::new();
    for joiner in joiners {
        by_place.extend(joiner.await.expect("a joiner"));
    }
    assert_eq!(by_place.len(), 320, "each place once");
    for (index, (place, ahead)) in by_place.iter().enumerate() {
        assert_eq!(*ahead, index as i64 * 1_000_000_000, "place {place} did not see all that stand ahead");
    }
}

async fn questions(conn: &mut Conn) -> u64 {
    let row: Option<(String, u64)> =
        conn.query_first("SHOW GLOBAL STATUS LIKE 'Questions'").await.expect("a count");
    row.expect("a row").1
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_idle_waiters_cost_few_queries() {
    let server = MariaDb::start();
    let holder = lockkeeper::connect(server.url()).await.expect("a keeper");
    let waiters = lockkeeper::connect(server.url()).await.expect("a keeper");
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(holder.mutex(format!("idle/{number}")).lock().await.expect("a grant"));
    }
    let waiting: Vec<_> = (0..200)
        .map(|number| {
            let lock = waiters.mutex(format!("idle/{}", number % 50));
            tokio::spawn(async move { lock.lock().await })
        })
        .collect();
    let mut watcher = client(&server).await;
    let in_queue = "SELECT COUNT(*) FROM lockkeeper_claims";
    while watcher.query_first::<u64, _>(in_queue).await.expect("a count") < Some(250) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = questions(&mut watcher).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let rate = (questions(&mut watcher).await - before) as f64 / 6.0;
    println!("200 idle waiters: {rate:.1} questions a second in all");
    assert!(rate <= 20.0, "{rate} questions a second");
    waiting.iter().for_each(|wait| wait.abort());
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_the_row_style_look_together() {
    let server = MariaDb::start();
    let url = format!("{}?style=row", server.url());
    let mut keepers = Vec::new();
    for _ in 0..5 {
        keepers.push(lockkeeper::connect(&url).await.expect("a keeper"));
    }
    let mut guards = Vec::new();
    for number in 0..50 {
        guards.push(keepers[0].mutex(format!("idle/{number}")).lock().await.expect("a grant"));
    }
    let waiting: Vec<_> = (0..200)
        .map(|number| {
            // However many keepers they are spread over.
            let lock = keepers[1 + number % 4].mutex(format!("idle/{}", number % 50));
            tokio::spawn(async move { lock.lock().await })
        })
        .collect();
    let mut watcher = client(&server).await;
    // Until all wait they ask more; nothing shows when that is.
    let mut rate = f64::MAX;
    for _ in 0..10 {
        let before = questions(&mut watcher).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        rate = (questions(&mut watcher).await - before) as f64 / 3.0;
        if rate <= 20.0 {
            break;
        }
    }
    println!("200 idle waiters, style row: {rate:.1} questions a second in all");
    assert!(rate <= 20.0, "{rate} questions a second");
    waiting.iter().for_each(|wait| wait.abort());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_is_refused() {
    let server = MariaDb::start();
    client(&server).await.query_drop("SET GLOBAL read_only = 1").await.expect("a setting");
    for style in lockkeeper_mysql::STYLES {
        let url = format!("{}?style={}", server.url(), style.style);
        let refused = lockkeeper::connect(url).await.expect_err("it must not give locks").to_string();
        assert!(refused.contains("read-only"), "{}: {refused}", style.style);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_after_idle_state_was_removed() {
    let server = MariaDb::start();
    let keeper = lockkeeper::connect(server.url()).await.expect("a keeper");
    let guard = keeper.mutex("cleaned").lock().await.expect("a grant");
    let before = guard.token().expect("a token");
    guard.release().await.expect("a release");
    let mut conn = client(&server).await;
    conn.query_drop("CALL lockkeeper_clean(0)").await.expect("a cleaning");
    let left: Option<u64> = conn.query_first("SELECT COUNT(*) FROM lockkeeper_locks").await.expect("a count");
    assert_eq!(left, Some(0), "nothing is left of an idle lock");
    let after = keeper.mutex("cleaned").lock().await.expect("a grant").token().expect("a token");
    assert!(after > before);
}

/// What the server is asked to take a user lock, and says: it must be from the session that we believe we are.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_lock_is_taken_by_the_session_that_asks_and_by_no_other() {
    let server = MariaDb::start();
    lockkeeper::connect(format!("{}?style=advisory", server.url())).await.expect("a keeper").close().await;
    let take = include_str!("../../src/sql/user_lock_take.sql");
    let mut sessions = [client(&server).await, client(&server).await];
    let mut last = 2;
    for (of, number, wanted) in
        [(0, 1, Some(2)), (0, 0, None), (1, 1, Some(0)), (1, 0, Some(2)), (0, 0, None)]
    {
        let number: Option<u64> =
            sessions[number].query_first("SELECT CONNECTION_ID()").await.expect("a number");
        let said: Option<u64> = sessions[of].exec_first(take, (number, "lk:it")).await.expect("a reply");
        let holder: Option<Option<u64>> =
            sessions[of].query_first("SELECT IS_USED_LOCK('lk:it')").await.expect("a holder");
        let said = said.expect("a row");
        match wanted {
            Some(wanted) => assert_eq!(said, wanted),
            None => {
                assert_eq!(holder.flatten(), number);
                assert!(said > last, "token {said} after {last}");
                last = said;
            }
        }
        if last == 2 {
            assert_eq!(holder.flatten(), None, "another session has taken it");
        }
    }
}

/// We reckon the name of a user lock ourselves; the procedures do it in the server.
#[tokio::test]
async fn the_server_knows_a_user_lock_by_the_name_that_its_own_function_makes() {
    let server = MariaDb::start();
    let keeper = lockkeeper::connect(format!("{}?style=advisory", server.url())).await.expect("a keeper");
    let mut observer = client(&server).await;
    for name in ["plain/1.a_b-c", "Upper", "with a space ", "ümlaut", &"x".repeat(100)] {
        let guard = keeper.mutex(name).lock().await.expect("a grant");
        let full = format!("lockkeeper/{name}");
        observer.exec_drop("CALL lockkeeper_advisory_key(?, @user_lock)", (full,)).await.expect("a name");
        let is_held = "SELECT IS_USED_LOCK(@user_lock) IS NOT NULL, LENGTH(@user_lock)";
        let (is_held, length): (bool, u64) =
            observer.query_first(is_held).await.expect("a look").expect("a row");
        assert!(is_held && length <= 64, "{name}");
        guard.release().await.expect("a release");
    }
}

/// A server ends connections that say nothing for long, as it must those of a dead host (`wait_timeout`). Ours are among them,
/// and nobody must notice, whether he holds a lock meanwhile, waits for one, or neither.
#[tokio::test(flavor = "multi_thread")]
async fn a_keeper_that_was_idle_for_long_locks_as_ever() {
    const IDLE: Duration = Duration::from_secs(13);
    let server = MariaDb::start_with(&["--wait-timeout=10"]);
    let mut keepers = Vec::new();
    for style in lockkeeper_mysql::STYLES.iter().map(|style| style.style) {
        let keeper = lockkeeper::connect(format!("{}?style={style}", server.url())).await.expect("a keeper");
        keeper.mutex("idle").lock().await.expect("a grant").release().await.expect("a release");
        let held = keeper.mutex("held").lock().await.expect("a grant");
        let other = lockkeeper::connect(format!("{}?style={style}", server.url())).await.expect("a keeper");
        let waits = tokio::spawn(async move { other.mutex("held").lock().await });
        keepers.push((style, keeper, held, waits));
    }
    tokio::time::sleep(IDLE).await;
    for (style, keeper, held, waits) in keepers {
        held.release().await.expect(style);
        waits.await.expect("no panic").expect(style).release().await.expect(style);
        keeper.mutex("idle").lock().await.expect(style).release().await.expect(style);
    }
}
