//! How a waiting keeper is woken: a connection of its own waits in the server until somebody kills its query.
//!
//! MySQL has no messages between its clients. But a query that waits costs nothing, and a leave that makes room for a
//! claim can end the wait of that claim's keeper at once. The query waits for a user lock that another connection of the
//! same keeper has. `SLEEP` would do without, but all sleepers of a MariaDB server share one mutex, and the `KILL` of one
//! then takes up to seconds where several are woken.

use crate::config::Settings;
use crate::connection::{Guarded, Work, first_row, open, ping};
use crate::error::{closed, failed, too_late};
use lockkeeper_core::engine::{ClaimId, Clock};
use lockkeeper_core::{Error, Result};
use lockkeeper_sql_common::Waiters;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const TAKE: &str = "SELECT GET_LOCK(?, 5)";
const WAIT: &str = "SELECT GET_LOCK(?, ?)";
/// More than the server waits.
const TAKE_LIMIT: Duration = Duration::from_secs(6);

/// The name of the user lock by which a new keeper is woken.
pub(crate) fn name() -> String {
    format!("lockkeeper_bell_{}", ClaimId::random())
}

/// Notifies `woken` whenever the keeper is woken, until the waiters are closed.
pub(crate) async fn listen(settings: Arc<Settings>, name: String, waiters: Arc<Waiters>, woken: Arc<Notify>) {
    while !waiters.is_closed() {
        if let Err(error) = wait_again(&settings, &name, &waiters, &woken).await {
            tracing::debug!(%error, "wake connection lost; reconnecting");
            Clock::Boot.sleep(Duration::from_millis(rand::random_range(50..300))).await;
        }
    }
}

/// Opens the connections and waits, again and again. The server closes them soon when nothing comes from them any more, or the
/// locks would stay with sessions that nobody has.
async fn wait_again(settings: &Settings, name: &str, waiters: &Waiters, woken: &Notify) -> Result<()> {
    let gate = format!("{name}_gate");
    let closed = holding(settings, gate.clone()).await?;
    let conn = holding(settings, name.to_owned()).await?;
    // A wake may have come while the connection was not there.
    waiters.look_in(Duration::ZERO);
    tokio::select! {
        ended = wait(settings, conn, gate, waiters, woken) => ended,
        lost = keep(settings, closed) => Err(lost),
    }
}

/// Waits for the lock at the gate, which is never free, until the waiters are closed.
async fn wait(
    settings: &Settings,
    mut conn: Guarded,
    gate: String,
    waiters: &Waiters,
    woken: &Notify,
) -> Result<()> {
    const DOING: &str = "wait for a wake";
    let limit = Duration::from_secs(settings.times.wait) + settings.limits.connect;
    let wait: Work<Option<Option<u8>>> = first_row(WAIT, (gate, settings.times.wait));
    while !waiters.is_closed() {
        let waited = Clock::Boot.timeout(limit, conn.run(&wait)).await;
        match waited.map_err(|_| too_late(DOING, limit))? {
            Ok(Some(Some(0))) => {}
            // The connection that had the other lock is gone.
            Ok(Some(Some(_))) => return Err(closed(DOING)),
            Ok(_) => woken.notify_one(),
            Err(error) if is_interrupted(&error) => woken.notify_one(),
            Err(error) => return Err(failed(DOING, error)),
        }
    }
    Ok(())
}

/// Keeps a connection in use, so that the server does not close it; says why it is lost.
async fn keep(settings: &Settings, mut conn: Guarded) -> Error {
    const DOING: &str = "keep the lock at the gate";
    let limit = settings.limits.connect;
    loop {
        Clock::Boot.sleep(Duration::from_secs(settings.times.wait)).await;
        match Clock::Boot.timeout(limit, conn.run(&ping())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return failed(DOING, error),
            Err(_) => return too_late(DOING, limit),
        }
    }
}

fn is_interrupted(error: &mysql_async::Error) -> bool {
    const INTERRUPTED: u16 = 1317;
    matches!(error, mysql_async::Error::Server(error) if error.code == INTERRUPTED)
}

/// A connection that has this user lock.
async fn holding(settings: &Settings, name: String) -> Result<Guarded> {
    const DOING: &str = "prepare to be woken";
    let (mut conn, _) = open(settings, &settings.waking).await?;
    let take: Work<Option<Option<u8>>> = first_row(TAKE, (name,));
    let taken = Clock::Boot.timeout(TAKE_LIMIT, conn.run(&take)).await;
    match taken.map_err(|_| too_late(DOING, TAKE_LIMIT))? {
        Ok(Some(Some(1))) => Ok(conn),
        Ok(_) => Err(closed(DOING)),
        Err(error) => Err(failed(DOING, error)),
    }
}
