//! The rule (`ahead + weight <= limit`) also stands in SQL: its copies say what the core's does.

use lockkeeper_core::engine::grant::fits;
use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::collections::BTreeSet;

const FITTING: &str = include_str!("../../src/sql/queue_fitting.sql");
const INSERT: &str = "INSERT INTO lockkeeper_claims \
    (name, place, id, demand, weight, room, permits, holder, bell, joined_at, expires_at) \
    VALUES ('rule', ?, ?, '', ?, ?, 0, '', ?, SYSDATE(6), SYSDATE(6) + INTERVAL 1 HOUR)";

/// Those of a queue that fit, by their number.
fn fitting(weights: &[u64], limit: u64) -> BTreeSet<usize> {
    let ahead = |index: usize| weights[..index].iter().sum();
    (0..weights.len()).filter(|index| fits(ahead(*index), weights[*index], limit)).collect()
}

const QUEUES: u64 = 150;

/// The weights of a queue, and the limit of its lock.
fn queue(random: &mut StdRng) -> (Vec<u64>, u64) {
    let limit = random.random_range(1..=6_u64);
    let length = random.random_range(1..=9);
    ((0..length).map(|_| random.random_range(1..=limit)).collect(), limit)
}

/// A join notes the time of the grant just where the rule grants it.
#[tokio::test]
async fn a_join_notes_the_grants_that_the_rule_makes() {
    let server = MariaDb::start();
    lockkeeper::connect(server.url()).await.expect("a keeper").close().await;
    let mut conn = Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a connection");
    let (mut held, mut waiting) = (0, 0);
    for seed in 0..QUEUES {
        let (weights, limit) = queue(&mut StdRng::seed_from_u64(seed));
        let name = format!("granted/{seed}");
        for (index, weight) in weights.iter().enumerate() {
            let join = "CALL lockkeeper_join(?, ?, '', ?, ?, 0, '', '', 3600000000)";
            let id = format!("{:032x}", (seed << 8) + index as u64);
            conn.exec_drop(join, (&name, id, weight, limit)).await.expect("a join");
        }
        let noted = "SELECT granted_at IS NOT NULL FROM lockkeeper_claims WHERE name = ? ORDER BY place";
        let noted: Vec<bool> = conn.exec(noted, (&name,)).await.expect("a look");
        let expected = fitting(&weights, limit);
        let found: BTreeSet<usize> = (0..noted.len()).filter(|index| noted[*index]).collect();
        assert_eq!((noted.len(), &found), (weights.len(), &expected), "seed {seed}: {weights:?} of {limit}");
        held += found.len();
        waiting += weights.len() - found.len();
    }
    assert!(held > 100 && waiting > 100, "{held} held, {waiting} wait");
}

#[tokio::test]
async fn the_copies_in_sql_agree_with_the_core() {
    let server = MariaDb::start();
    lockkeeper::connect(server.url()).await.expect("a keeper").close().await;
    let mut conn = Conn::new(Opts::from_url(&server.url()).expect("a URL")).await.expect("a connection");
    for seed in 0..QUEUES {
        let mut random = StdRng::seed_from_u64(seed);
        let (weights, limit) = queue(&mut random);
        conn.query_drop("DELETE FROM lockkeeper_claims").await.expect("an empty queue");
        for (index, weight) in weights.iter().enumerate() {
            let values = (index * 10 + 10, format!("{index:032x}"), weight, limit, "mine");
            conn.exec_drop(INSERT, values).await.expect("a claim");
        }
        // The look of a keeper that was woken.
        let look = FITTING.replace("{names}", "'rule'").replace("{bell}", "mine");
        let rows: Vec<(String, u64)> = conn.query(look).await.expect("a look");
        let found = |id: &String| usize::from_str_radix(id, 16).expect("an id");
        let seen: BTreeSet<usize> = rows.iter().map(|(id, _)| found(id)).collect();
        assert_eq!(seen, fitting(&weights, limit), "seed {seed}: {weights:?} of {limit}");
        for (id, ahead) in &rows {
            assert_eq!(*ahead, weights[..found(id)].iter().sum::<u64>(), "seed {seed}: {weights:?}");
        }
        // Whom a leave wakes: those that fit now and did not before.
        conn.query_drop("UPDATE lockkeeper_claims SET bell = CONV(id, 16, 10)")
            .await
            .expect("a wake lock each");
        let gone = random.random_range(0..weights.len());
        let place = gone * 10 + 10;
        conn.exec_drop("DELETE FROM lockkeeper_claims WHERE place = ?", (place,)).await.expect("a leave");
        let call = "CALL lockkeeper_fitting('rule', ?, ?, @bells)";
        conn.exec_drop(call, (place, weights[gone])).await.expect("a call");
        let woken: Option<String> = conn.query_first("SELECT @bells").await.expect("a list");
        let woken: BTreeSet<usize> =
            woken.expect("a row").split(',').filter_map(|bell| bell.parse().ok()).collect();
        let mut left = weights.clone();
        left.remove(gone);
        let before = fitting(&weights, limit);
        let now = fitting(&left, limit).into_iter().map(|index| index + usize::from(index >= gone));
        let wanted: BTreeSet<usize> = now.filter(|index| *index > gone && !before.contains(index)).collect();
        assert_eq!(woken, wanted, "seed {seed}: {weights:?} of {limit} without {gone}");
    }
}
