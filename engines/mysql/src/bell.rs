//! The bell of a keeper: a connection that waits in the server until somebody kills its query.
//!
//! MySQL has no messages between its clients. But a query that waits costs nothing, and whoever makes room for a claim
//! can end the wait of that claim's keeper at once. It waits for a user lock that another connection of the same
//! keeper has, its gate. `SLEEP` would do without, but all sleepers of a MariaDB server share one mutex, and the
//! `KILL` of one then takes up to seconds where several are rung.

use crate::config::Settings;
use crate::fault::cut;
use crate::wire::Wire;
use lockkeeper_core::{ClaimId, Result, background};
use lockkeeper_sql_common::Waiters;
use mysql_async::prelude::Queryable;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const TAKE: &str = include_str!("sql/bell_take.sql");
const WAIT: &str = include_str!("sql/bell_wait.sql");
/// Longer than the wait.
const LIMIT: Duration = Duration::from_secs(25);

/// A name for a new bell.
pub(crate) fn name() -> String {
    format!("lockkeeper_bell_{}", ClaimId::random())
}

/// Keeps the bell hanging and looks after the waiters when it rings, until the book of waiters is closed.
pub(crate) async fn hang(settings: Arc<Settings>, name: String, waiters: Arc<Waiters>, rung: Arc<Notify>) {
    while !waiters.is_closed() {
        if let Err(error) = listen(&settings, &name, &waiters, &rung).await {
            tracing::debug!(%error, "the bell fell down; hanging it again");
            tokio::time::sleep(Duration::from_millis(rand::random_range(50..300))).await;
        }
    }
}

/// Opens the connections and waits at the gate, again and again.
async fn listen(settings: &Settings, name: &str, waiters: &Waiters, rung: &Notify) -> Result<()> {
    let gate = format!("{name}_gate");
    let _closed = holding(settings, gate.clone()).await?;
    let wire = holding(settings, name.to_owned()).await?;
    // Somebody may have rung while it was not there.
    waiters.look_in(Duration::ZERO);
    while !waiters.is_closed() {
        let gate = gate.clone();
        let wait = wire.run_within(
            "listen for the bell",
            LIMIT,
            Box::new(move |conn| {
                let gate = gate.clone();
                Box::pin(async move { wait(conn, gate).await })
            }),
        );
        match wait.await? {
            Woken::Rung => rung.notify_one(),
            Woken::InVain => {}
            Woken::GateIsOpen => return Err(cut("listen for the bell")),
        }
    }
    Ok(())
}

/// A connection that has this user lock.
async fn holding(settings: &Settings, name: String) -> Result<Arc<Wire>> {
    let wire = Wire::open(settings, background::handle()).await?;
    let got: Option<u8> = wire
        .run_within(
            "hang the bell",
            Duration::from_secs(6),
            Box::new(move |conn| {
                let name = name.clone();
                Box::pin(
                    async move { Ok(conn.exec_first::<Option<u8>, _, _>(TAKE, (name,)).await?.flatten()) },
                )
            }),
        )
        .await?;
    if got == Some(1) { Ok(wire) } else { Err(cut("hang the bell")) }
}

/// How a wait ended.
enum Woken {
    Rung,
    InVain,
    /// The connection that had it is gone.
    GateIsOpen,
}

async fn wait(conn: &mut mysql_async::Conn, gate: String) -> mysql_async::Result<Woken> {
    const INTERRUPTED: u16 = 1317;
    match conn.exec_first::<Option<u8>, _, _>(WAIT, (gate,)).await {
        Ok(Some(Some(0))) => Ok(Woken::InVain),
        Ok(Some(Some(_))) => Ok(Woken::GateIsOpen),
        Ok(_) => Ok(Woken::Rung),
        Err(mysql_async::Error::Server(told)) if told.code == INTERRUPTED => Ok(Woken::Rung),
        Err(error) => Err(error),
    }
}
