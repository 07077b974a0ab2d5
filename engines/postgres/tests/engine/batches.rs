//! Many tasks on rows and queues: what they send travels together, and no two statements wait for each other.

use crate::leaving::{self, until_idle};
use lockkeeper::views::Demand;
use lockkeeper::{Guard, Keeper};
use lockkeeper_conformance::history::Recorder;
use lockkeeper_testkit::Postgres;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Barrier;
use tokio_postgres::{Client, NoTls};

async fn client(server: &Postgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.expect("a connection");
    tokio::spawn(connection);
    client
}

async fn keeper(server: &Postgres) -> Keeper {
    keeper_with(server, lockkeeper::DEFAULT_TTL).await
}

async fn keeper_with(server: &Postgres, ttl: Duration) -> Keeper {
    keeper_of(server, "row", ttl).await
}

async fn keeper_of(server: &Postgres, style: &str, ttl: Duration) -> Keeper {
    let url = format!("{}?style={style}", server.url());
    lockkeeper::Connect::to(url).ttl(ttl).connect().await.expect("a keeper")
}

/// The number of the next transaction that writes.
async fn transaction(client: &Client) -> i64 {
    client.query_one("SELECT txid_current()", &[]).await.expect("a number").get(0)
}

/// How many transactions write while these run. They begin while nobody can write, so that all are there before the first
/// is answered.
async fn commits<T: Send + 'static>(
    server: &Postgres,
    table: &str,
    tasks: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> (Vec<T>, i64) {
    let (gate, counter) = (client(server).await, client(server).await);
    let close = format!("BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE");
    gate.batch_execute(&close).await.expect("a gate");
    let tasks: Vec<_> = tasks.map(tokio::spawn).collect();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = transaction(&counter).await;
    gate.batch_execute("COMMIT").await.expect("an open gate");
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.expect("a task"));
    }
    (outcomes, transaction(&counter).await - before - 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_share_commits_and_one_has_its_own() {
    for (style, table) in [("row", "lockkeeper_rows"), ("queue", "lockkeeper_claims")] {
        share_commits(style, table).await;
    }
}

async fn share_commits(style: &str, table: &str) {
    let server = Postgres::start_with(&["autovacuum=off"]);
    let keeper = keeper_of(&server, style, lockkeeper::DEFAULT_TTL).await;
    let counter = client(&server).await;
    let lock = |task| keeper.mutex(format!("many/{task}"));
    // The connections are opened before it counts.
    futures_util::future::join_all((0..64).map(async |task| lock(task).lock().await.map(drop))).await;
    until_idle(&keeper).await;

    let takes = (0..64).map(lock).map(|lock| async move { lock.lock().await.expect("a lock") });
    let (guards, took) = commits(&server, table, takes).await;
    let frees = guards.into_iter().map(|guard| async move { guard.release().await.expect("a release") });
    let (_, freed) = commits(&server, table, frees).await;
    println!("{style}: 64 tasks: {took} commits to take, {freed} to free");
    assert!((1..=16).contains(&took) && (1..=16).contains(&freed));

    let before = transaction(&counter).await;
    for _ in 0..20 {
        lock(0).lock().await.expect("a lock").release().await.expect("a release");
    }
    assert_eq!(transaction(&counter).await - before - 1, 40, "one who comes alone goes at once");
}

/// Many tasks of several keepers try the same locks, each keeper in an order of its own.
async fn hammer(keepers: &[Keeper], recorder: &Recorder, locks: u32, turns: u32) {
    let mut tasks = Vec::new();
    for (number, keeper) in (0..).zip(keepers) {
        for task in 0..32 {
            let (keeper, recorder, client) = (keeper.clone(), recorder.clone(), number * 32 + task);
            tasks.push(tokio::spawn(async move {
                for turn in 0..turns {
                    let step = (task * 7 + turn) % locks;
                    let lock = if number % 2 == 0 { step } else { locks - 1 - step };
                    let story = recorder.asks(client, lock, Demand::Exclusive);
                    let asked = keeper.mutex(format!("hammered/{lock}")).try_lock().await;
                    let moment = Duration::from_millis((turn % 3).into());
                    story.gets(asked, tokio::time::sleep(moment)).await;
                }
            }));
        }
    }
    for task in tasks {
        task.await.expect("a task");
    }
}

/// How many the server has broken; its processes tell at their end, at the latest.
async fn deadlocks(client: &Client) -> i64 {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let text =
        "SELECT pg_stat_clear_snapshot(), (SELECT sum(deadlocks)::bigint FROM pg_stat_database) AS count";
    client.query_one(text, &[]).await.expect("the statistics").get("count")
}

#[tokio::test(flavor = "multi_thread")]
async fn keepers_that_want_the_same_locks_in_other_orders_exclude_each_other_and_never_deadlock() {
    for style in ["row", "queue"] {
        never_deadlock(style).await;
    }
}

async fn never_deadlock(style: &str) {
    let server = Postgres::start_with(&["deadlock_timeout=100ms"]);
    // So short that renewals run all the time; some holds are held throughout, however busy the machine is.
    let ttl = Duration::from_secs(6);
    let keepers = [keeper_of(&server, style, ttl).await, keeper_of(&server, style, ttl).await];
    let mut kept = Vec::new();
    for number in 0..50 {
        kept.push(keepers[number % 2].mutex(format!("kept/{number}")).lock().await.expect("a lock"));
    }
    let recorder = Recorder::new();
    hammer(&keepers, &recorder, 40, 120).await;
    assert!(recorder.judged().events.len() > 5000);
    for guard in kept {
        guard.release().await.expect("it was kept");
    }
    until_idle(&keepers[0]).await;
    for keeper in keepers {
        keeper.close().await;
    }
    assert_eq!(deadlocks(&client(&server).await).await, 0);
}

/// Lets every row take its time, so that statements meet half-way.
const SLOW: &str = "
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_sleep(0.001);
        RETURN coalesce(NEW, OLD);
    END $$;
    CREATE TRIGGER slow BEFORE INSERT OR UPDATE OR DELETE ON lockkeeper_rows
    FOR EACH ROW EXECUTE FUNCTION slow()";

/// Both want the same locks at the same moment, one from the last to the first.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_keepers_that_come_at_once_one_gets_each_lock_and_neither_waits_in_a_circle() {
    const LOCKS: usize = 64;
    let server = Postgres::start_with(&["deadlock_timeout=100ms"]);
    let keepers = [keeper(&server).await, keeper(&server).await];
    client(&server).await.batch_execute(SLOW).await.expect("a trigger");
    for wave in 0..10 {
        let start = Arc::new(Barrier::new(2 * LOCKS));
        let tries = (0..2 * LOCKS).map(|task| {
            let number = if task < LOCKS { task } else { 2 * LOCKS - 1 - task };
            let (lock, start) =
                (keepers[task / LOCKS].mutex(format!("wave/{wave}/{number}")), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                (number, lock.try_lock().await.expect("an answer"))
            })
        });
        let mut guards: [Option<Guard>; LOCKS] = [const { None }; LOCKS];
        for attempt in tries.collect::<Vec<_>>() {
            if let (number, Some(guard)) = attempt.await.expect("a task") {
                assert!(guards[number].replace(guard).is_none(), "two hold {number}");
            }
        }
        let releases = guards.map(|guard| tokio::spawn(guard.expect("one of the two holds").release()));
        for release in releases {
            release.await.expect("a task").expect("a release");
        }
    }
    for keeper in keepers {
        keeper.close().await;
    }
    assert_eq!(deadlocks(&client(&server).await).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_leave_nobody_holding_twice_and_nothing_behind() {
    for style in ["row", "queue"] {
        break_connections(style).await;
    }
}

async fn break_connections(style: &str) {
    let server = Postgres::start();
    let ttl = lockkeeper::DEFAULT_TTL;
    let keepers = [keeper_of(&server, style, ttl).await, keeper_of(&server, style, ttl).await];
    let killer = client(&server).await;
    let killing = tokio::spawn(async move {
        let all =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lockkeeper'";
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            killer.query(all, &[]).await.expect("an end");
        }
    });
    let recorder = Recorder::new();
    hammer(&keepers, &recorder, 80, 150).await;
    killing.abort();
    recorder.judged();
    until_idle(&keepers[0]).await;
}

const TAKE_MANY: &str = include_str!("../../src/sql/row_take_many.sql");
const FREE_MANY: &str = include_str!("../../src/sql/row_free_many.sql");
const KEEP: &str = include_str!("../../src/sql/row_keep.sql");

/// The statements themselves, with names in all orders, as a request that was given up and the next one might bring them
/// together.
#[tokio::test(flavor = "multi_thread")]
async fn statements_that_take_free_and_renew_the_same_rows_never_wait_in_a_circle() {
    const NAMES: usize = 20;
    let server = Postgres::start_with(&["deadlock_timeout=100ms"]);
    keeper(&server).await.close().await;
    client(&server).await.batch_execute(SLOW).await.expect("a trigger");
    let workers = (0..6).map(|worker: usize| {
        let url = server.url();
        tokio::spawn(async move {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("a connection");
            tokio::spawn(connection);
            client
                .batch_execute(include_str!("../../src/sql/connection_setup.sql"))
                .await
                .expect("the settings");
            let [take, free, keep] = [TAKE_MANY, FREE_MANY, KEEP];
            let take = client.prepare(take).await.expect("a statement");
            let free = client.prepare(free).await.expect("a statement");
            let keep = client.prepare(keep).await.expect("a statement");
            let mut numbers: Vec<usize> = (0..NAMES).collect();
            let mut done = 0;
            for turn in 0..30 {
                numbers.rotate_left((worker * 13 + turn) % NAMES);
                if (worker + turn).is_multiple_of(2) {
                    numbers.reverse();
                }
                let names: Vec<String> = numbers.iter().map(|number| format!("circle/{number}")).collect();
                let ids: Vec<String> = numbers.iter().map(|number| format!("{number:032x}")).collect();
                let (texts, many) = (vec![""; NAMES], vec![60_000_i64; NAMES]);
                let ttls = vec![60_000_f64; NAMES];
                let outcome = match (worker + turn) % 3 {
                    0 => client.query(&take, &[&names, &ids, &texts, &texts, &many, &texts, &ttls]).await,
                    1 => client.query(&keep, &[&names, &ids, &many]).await,
                    _ => client.query(&free, &[&names, &ids]).await,
                };
                done += outcome.expect("nobody waits in a circle").len();
            }
            done
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        assert!(worker.await.expect("a worker") > 0, "they met no rows");
    }
}

/// What `lockkeeper_join_many` replies for these names and ids, each an exclusive claim or one of two permits: the id, and the
/// weight ahead or the demand that rules.
async fn join_together(client: &Client, claims: &[(&str, &str, bool)]) -> Vec<(String, i64, Option<String>)> {
    let column = |of: fn(&(&str, &str, bool)) -> String| claims.iter().map(of).collect::<Vec<_>>();
    let numbers = |of: fn(bool) -> i64| claims.iter().map(|claim| of(claim.2)).collect::<Vec<_>>();
    let (names, ids) = (column(|claim| claim.0.into()), column(|claim| claim.1.into()));
    let demands = column(|claim| if claim.2 { "permits 1 of 2".into() } else { "exclusive".into() });
    let (weights, rooms) = (vec![1_i64; claims.len()], numbers(|permits| if permits { 2 } else { 1 }));
    let permits = numbers(|permits| if permits { 2 } else { 0 });
    let (holders, ttls) = (vec![""; claims.len()], vec![3_600_000_i64; claims.len()]);
    let join = "SELECT id, o_place, o_ahead, o_ruling FROM lockkeeper_join_many($1, $2, $3, $4, $5, $6, $7, 'none', $8)";
    let rows = client
        .query(join, &[&names, &ids, &demands, &weights, &rooms, &permits, &holders, &ttls])
        .await
        .expect("joins");
    let mut found: Vec<_> = rows.iter().map(|row| (row.get(0), row.get(2), row.get(3))).collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_join_together_find_what_they_would_find_one_by_one() {
    let server = Postgres::start();
    keeper_of(&server, "queue", lockkeeper::DEFAULT_TTL).await.close().await;
    let client = client(&server).await;
    let expected = |found: &[(&str, i64, Option<&str>)]| -> Vec<(String, i64, Option<String>)> {
        found.iter().map(|(id, ahead, ruling)| ((*id).into(), *ahead, ruling.map(Into::into))).collect()
    };
    let first = join_together(&client, &[("a", "1", false), ("b", "2", true), ("c", "3", false)]).await;
    assert_eq!(first, expected(&[("1", 0, None), ("2", 0, None), ("3", 0, None)]));
    // Behind a claim, beside one, once more, of another shape, and on a free lock.
    let next = [("a", "4", false), ("b", "5", true), ("b", "6", false), ("c", "3", false), ("d", "7", false)];
    let next = join_together(&client, &next).await;
    let ruling = Some("permits 1 of 2");
    assert_eq!(
        next.iter().filter(|(id, ..)| id != "6").cloned().collect::<Vec<_>>(),
        expected(&[("3", 0, None), ("4", 1, None), ("5", 1, None), ("7", 0, None)])
    );
    assert_eq!(next.iter().find(|(id, ..)| id == "6").expect("a reply").2.as_deref(), ruling);
    // Of several on one free lock, one after the other.
    let same = join_together(&client, &[("e", "8", false), ("e", "9", false), ("e", "10", false)]).await;
    let mut ahead: Vec<i64> = same.iter().map(|(_, ahead, _)| *ahead).collect();
    ahead.sort_unstable();
    assert_eq!(ahead, [0, 1, 2]);
}

/// As many tasks of two keepers as there are batches of, on few locks: what they send together is about the same ones.
#[tokio::test(flavor = "multi_thread")]
async fn of_queues_that_many_join_and_leave_together_each_goes_to_one_after_the_other() {
    let server = Postgres::start();
    let keepers = [(); 2].map(|()| async { keeper_of(&server, "queue", lockkeeper::DEFAULT_TTL).await });
    let keepers = futures_util::future::join_all(keepers).await;
    let recorder = Recorder::new();
    let tasks: Vec<_> = (0..64_u32)
        .map(|task| {
            let (keeper, recorder) = (keepers[task as usize % 2].clone(), recorder.clone());
            tokio::spawn(async move {
                for turn in 0..10 {
                    let lock = (task + turn) % 5;
                    let story = recorder.asks(task, lock, Demand::Exclusive);
                    let asked = keeper.mutex(format!("few/{lock}")).lock().await.map(Some);
                    story.gets(asked, std::future::ready(())).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("a task");
    }
    assert!(recorder.judged().events.len() > 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_taken_together_the_expired_are_taken_over_and_the_held_are_not() {
    let server = Postgres::start();
    let keeper = keeper(&server).await;
    let row = "INSERT INTO lockkeeper_rows SELECT 'lockkeeper/mixed/' || number, md5(number::text), 1, '', '', 1, '', now(), \
               now() + CASE number % 3 WHEN 0 THEN interval '-1 s' ELSE interval '1 h' END \
               FROM generate_series(0, 89) AS number WHERE number % 3 < 2";
    client(&server).await.execute(row, &[]).await.expect("rows");
    for _ in 0..2 {
        let tries = (0..90).map(|number| {
            let lock = keeper.mutex(format!("mixed/{number}"));
            tokio::spawn(async move { lock.try_lock().await.expect("an answer") })
        });
        for (number, attempt) in tries.collect::<Vec<_>>().into_iter().enumerate() {
            let guard = attempt.await.expect("a task");
            assert_eq!(guard.is_none(), number % 3 == 1, "mixed/{number}");
            if let Some(guard) = guard {
                assert!(guard.token().expect("a token").0 > 1);
                guard.release().await.expect("a release");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_the_server_refuses_does_not_fail_the_others() {
    let server = Postgres::start();
    let keeper = keeper(&server).await;
    let refuse = "
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF TG_OP = 'INSERT' AND NEW.name LIKE '%/13' OR TG_OP = 'DELETE' AND OLD.name LIKE '%/14' THEN
                RAISE EXCEPTION 'not this one';
            END IF;
            RETURN coalesce(NEW, OLD);
        END $$;
        CREATE TRIGGER refuse BEFORE INSERT OR DELETE ON lockkeeper_rows FOR EACH ROW EXECUTE FUNCTION refuse()";
    client(&server).await.batch_execute(refuse).await.expect("a trigger");
    let tasks = (0..40).map(|number| {
        let lock = keeper.mutex(format!("refused/{number}"));
        tokio::spawn(async move { lock.lock().await?.release().await })
    });
    for (number, task) in tasks.collect::<Vec<_>>().into_iter().enumerate() {
        let outcome = task.await.expect("a task");
        assert_eq!(outcome.is_err(), [13, 14].contains(&number), "{number}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_that_go_away_leave_nothing_behind() {
    for (style, table) in [("row", "lockkeeper_rows"), ("queue", "lockkeeper_claims")] {
        go_away(style, table).await;
    }
}

async fn go_away(style: &str, table: &str) {
    let server = Postgres::start();
    let keeper = keeper_of(&server, style, Duration::from_secs(120)).await;
    let slow = SLOW.replace("lockkeeper_rows", table);
    client(&server).await.batch_execute(&slow).await.expect("a trigger");
    leaving::tasks_that_go_away_leave_nothing_behind(&keeper, 10, Duration::from_millis(12)).await;
}
