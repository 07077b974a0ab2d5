//! How near each style comes to the raw floor: the same server, the same driver, the same run.
//!
//! `cargo run --release -p lockkeeper-postgres --example postgres_floor [-- URL] [STYLE…]`; without a URL it starts a server that
//! waits for the disk at every commit.

#[path = "../../sql-common/measure/floor.rs"]
mod floor;

use floor::{Failure, Wishes, compare, hand_over, hold_if_asked, killed};
use lockkeeper_testkit::{Placement, Postgres};
use std::sync::Arc;
use tokio_postgres::{Client, NoTls, Statement};

/// As many connections as the queue style opens.
const CONNECTIONS: usize = 4;

const WRITES: [&str; 2] = ["INSERT INTO floor VALUES ($1)", "DELETE FROM floor WHERE name = $1"];
const ADVISORY: [&str; 2] = [
    "SELECT pg_try_advisory_lock(hashtextextended($1, 0))",
    "SELECT pg_advisory_unlock(hashtextextended($1, 0))",
];

struct Raw {
    client: Client,
    pair: [Statement; 2],
}

async fn raw(url: &str, [first, second]: [&str; 2]) -> Result<Raw, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let pair = [client.prepare(first).await?, client.prepare(second).await?];
    Ok(Raw { client, pair })
}

async fn measure(url: &str, style: &str, tasks: usize, placement: Placement) -> Result<(), Failure> {
    let (pair, connections) = if style == "advisory" { (ADVISORY, 1) } else { (WRITES, CONNECTIONS) };
    let mut raws = Vec::new();
    for _ in 0..if tasks == 1 { 1 } else { connections } {
        raws.push(raw(url, pair).await?);
    }
    let raws = Arc::new(raws);
    compare(url, style, tasks, placement, move |task| {
        let raws = Arc::clone(&raws);
        async move {
            let raw = &raws[task % raws.len()];
            let name = format!("floor/{task}");
            for statement in &raw.pair {
                raw.client.query(statement, &[&name]).await.expect("a statement");
            }
        }
    })
    .await
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    hold_if_asked().await?;
    let wishes = Wishes::read();
    let server = wishes.url.is_none().then(|| Postgres::start_with(&["max_connections=300", "fsync=on"]));
    let url =
        wishes.url.clone().or_else(|| server.as_ref().map(|server| server.url())).expect("one of the two");
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE IF NOT EXISTS floor (name text PRIMARY KEY)").await?;
    for style in lockkeeper_postgres::STYLES.iter().map(|style| style.style) {
        if wishes.include(style) {
            for (tasks, placement) in wishes.runs() {
                measure(&url, style, tasks, placement).await?;
            }
            hand_over(&url, style).await?;
            if ["session", "advisory"].contains(&style) {
                killed(&url, style).await?;
            }
        }
    }
    Ok(())
}
