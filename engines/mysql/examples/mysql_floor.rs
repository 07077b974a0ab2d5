//! How near each style comes to the raw floor: the same server, the same driver, the same run.
//!
//! `cargo run --release -p lockkeeper-mysql --example mysql_floor [-- URL] [STYLE…]`; without a URL it starts a server, which
//! waits for the disk at every commit.

#[path = "../../sql-common/measure/floor.rs"]
mod floor;

use floor::{Failure, Wishes, compare, hand_over, hold_if_asked, killed};
use lockkeeper_testkit::{MariaDb, Placement};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use std::sync::Arc;
use tokio::sync::Mutex;

/// As many connections as the queue style opens.
const CONNECTIONS: usize = 8;

const WRITES: [&str; 2] = ["INSERT INTO floor VALUES (?)", "DELETE FROM floor WHERE name = ?"];
// Its answer is read: without, as with DO GET_LOCK, nobody knows whether he has the lock.
const ADVISORY: [&str; 2] = ["SELECT GET_LOCK(?, 0)", "DO RELEASE_LOCK(?)"];

async fn measure(url: &str, style: &str, tasks: usize, placement: Placement) -> Result<(), Failure> {
    let (pair, wanted, connections) =
        if style == "advisory" { (ADVISORY, Some(1), 1) } else { (WRITES, None, CONNECTIONS) };
    // A connection is for one task at a time, as the protocol wants it.
    let mut raws = Vec::new();
    for _ in 0..if tasks == 1 { 1 } else { connections } {
        // By TCP, as ours are: the driver would change to the server's own socket on the same machine.
        let opts = Opts::from_url(&format!("{url}?prefer_socket=false"))?;
        raws.push(Mutex::new(Conn::new(opts).await?));
    }
    let raws = Arc::new(raws);
    compare(url, style, tasks, placement, move |task| {
        let raws = Arc::clone(&raws);
        async move {
            let raw = &raws[task % raws.len()];
            let name = format!("floor/{task}");
            let answer: Option<i64> =
                raw.lock().await.exec_first(pair[0], (&name,)).await.expect("a statement");
            assert_eq!(answer, wanted);
            raw.lock().await.exec_drop(pair[1], (&name,)).await.expect("a statement");
        }
    })
    .await
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Failure> {
    hold_if_asked().await?;
    let wishes = Wishes::read();
    let server = wishes
        .url
        .is_none()
        .then(|| MariaDb::start_with(&["--max-connections=300", "--innodb-buffer-pool-size=128M"]));
    let url =
        wishes.url.clone().or_else(|| server.as_ref().map(|server| server.url())).expect("one of the two");
    let mut conn = Conn::new(Opts::from_url(&url)?).await?;
    conn.query_drop("CREATE TABLE IF NOT EXISTS floor (name VARBINARY(640) PRIMARY KEY)").await?;
    for style in lockkeeper_mysql::STYLES.iter().map(|style| style.style) {
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
