//! Three ways to wake a waiter on a server without messages, measured beside each other: a bell (a waiting query that is
//! killed), a query at a pace, and a gate (`GET_LOCK` on the claim ahead).
//!
//! `cargo run --release -p lockkeeper-mysql --example mysql_wake`; it starts a server.

use lockkeeper_testkit::MariaDb;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

const TURNS: usize = 60;
/// What the queue style's page compares: as often as all idle waiters together may ask.
const PACE: Duration = Duration::from_millis(50);
const WAITERS: u32 = 200;

const LEAVE: &str = "UPDATE wake SET held = 0";
const JOIN: &str = "UPDATE wake SET held = 1";
const LOOK: &str = "SELECT held FROM wake";

#[derive(Clone, Copy, Debug)]
enum Way {
    Bell,
    Pace,
    Gate,
}

/// Waits until the lock is seen free; says first that it waits.
async fn wait(way: Way, mut conn: Conn, ready: oneshot::Sender<u32>) -> mysql_async::Result<(Instant, Conn)> {
    let number = conn.id();
    let _ = ready.send(number);
    match way {
        // A killed query is an error, which is what was waited for.
        Way::Bell => drop(conn.query_drop("SELECT GET_LOCK('closed', 20)").await),
        Way::Pace => {}
        Way::Gate => conn.query_drop("DO GET_LOCK('gate', 30)").await?,
    }
    while conn.query_first::<u8, _>(LOOK).await? != Some(0) {
        tokio::time::sleep(PACE).await;
    }
    let seen = Instant::now();
    if let Way::Gate = way {
        conn.query_drop("DO RELEASE_LOCK('gate')").await?;
    }
    Ok((seen, conn))
}

async fn questions(conn: &mut Conn) -> mysql_async::Result<u64> {
    let row: Option<(String, u64)> = conn.query_first("SHOW GLOBAL STATUS LIKE 'Questions'").await?;
    Ok(row.map_or(0, |row| row.1))
}

/// The median time from the leave to the look that sees it, and the requests that a hand-over takes.
async fn measure(way: Way, url: &str) -> mysql_async::Result<(f64, f64)> {
    let opts = Opts::from_url(url)?;
    let [mut holder, mut waiter] = [Conn::new(opts.clone()).await?, Conn::new(opts).await?];
    let (mut times, before) = (Vec::new(), questions(&mut holder).await?);
    for _ in 0..TURNS {
        holder.query_drop(JOIN).await?;
        if let Way::Gate = way {
            holder.query_drop("DO GET_LOCK('gate', 0)").await?;
        }
        let (ready, waits) = oneshot::channel();
        let next = tokio::spawn(wait(way, waiter, ready));
        let number = waits.await.unwrap_or_default();
        tokio::time::sleep(Duration::from_millis(rand::random_range(20..70))).await;
        let left = Instant::now();
        holder.query_drop(LEAVE).await?;
        match way {
            Way::Bell => holder.query_drop(format!("KILL QUERY {number}")).await?,
            Way::Pace => {}
            Way::Gate => holder.query_drop("DO RELEASE_LOCK('gate')").await?,
        }
        let seen;
        (seen, waiter) = next.await.expect("a waiter")?;
        times.push((seen - left).as_secs_f64() * 1000.0);
    }
    let requests = (questions(&mut holder).await? - before - 1) as f64 / TURNS as f64;
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], requests))
}

#[tokio::main(worker_threads = 2)]
async fn main() -> mysql_async::Result<()> {
    let server = MariaDb::start();
    let mut conn = Conn::new(Opts::from_url(&server.url())?).await?;
    conn.query_drop("CREATE TABLE wake (held INT)").await?;
    conn.query_drop("INSERT INTO wake VALUES (0)").await?;
    // What the bell waits for in vain.
    conn.query_drop("DO GET_LOCK('closed', 0)").await?;
    for way in [Way::Bell, Way::Pace, Way::Gate] {
        let (median, requests) = measure(way, &server.url()).await?;
        let (idle, connections) = match way {
            Way::Bell => (1.0 / 20.0, 2),
            Way::Pace => (1.0 / PACE.as_secs_f64(), 1),
            Way::Gate => (f64::from(WAITERS) / 30.0, WAITERS),
        };
        println!(
            "{way:?}: {median:.2} ms at the median, {requests:.1} requests for a join and a hand-over; {WAITERS} idle waiters, \
             reckoned: {idle:.2} queries a second on {connections} connection(s)"
        );
    }
    Ok(())
}
