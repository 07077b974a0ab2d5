//! What the user sees while a command waits for its lock: the place in the queue and the holder.

use crate::output::warn;
use crate::table::{brief, printable};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockkeeper::views::{ClaimView, LockView};
use lockkeeper::{Holder, Keeper};
use lockkeeper_core::engine::runs_around;
use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Shorter waits show nothing in a terminal.
const SILENT_FOR: Duration = Duration::from_millis(300);
/// Shorter waits print nothing without a terminal, where a line may become a mail.
const SILENT_WITHOUT_TERMINAL: Duration = Duration::from_secs(1);
/// One turn of the spinner.
const TURN: Duration = Duration::from_millis(100);
/// How often the engine is asked for the queue.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What the lock gets of a wait at least, if the engine took most of it to reply: a free lock is still acquired.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// What is left of a wait for the lock after the connection took some of it.
pub(crate) fn rest_of(limit: Duration, connected_after: Duration) -> Duration {
    limit.saturating_sub(connected_after).max(limit.min(LEAST_WAIT))
}

/// Shows the wait until it is dropped: a spinner in a terminal, one line elsewhere.
pub(crate) async fn show(keeper: &Keeper, names: &[String]) -> Infallible {
    if !std::io::stderr().is_terminal() {
        sleep(SILENT_WITHOUT_TERMINAL).await;
        warn(&describe(keeper, names).await);
        return std::future::pending().await;
    }
    sleep(SILENT_FOR).await;
    let spinner = Spinner::new();
    let mut looked = None;
    loop {
        if looked.is_none_or(|moment: Instant| moment.elapsed() >= LOOK_EVERY) {
            spinner.0.set_message(describe(keeper, names).await);
            looked = Some(Instant::now());
        }
        spinner.0.tick();
        sleep(TURN).await;
    }
}

/// A call inside a command that already runs under the lock waits for itself, unless that hold is lost or evicted. So it is
/// a warning, and the wait goes on.
pub(crate) async fn warn_of_itself(keeper: &Keeper, names: &[String]) -> Infallible {
    sleep(SILENT_FOR).await;
    if !runs_around().is_empty() {
        for name in names {
            if find(keeper, name).await.is_some_and(|lock| is_around_this(&lock)) {
                warn(&format!(
                    "already runs under '{name}' (a lockkeeper run around it holds it), so this waits for itself"
                ));
            }
        }
    }
    std::future::pending().await
}

/// Whether a `lockkeeper run` around this process holds the lock.
pub(crate) fn is_around_this(lock: &LockView) -> bool {
    let (runs, here) = (runs_around(), Holder::here(""));
    let is_around = |claim: &ClaimView| {
        !claim.foreign && claim.holder.machine() == here.machine() && runs.contains(&claim.holder.pid)
    };
    lock.holders().any(is_around)
}

/// Says once that the wait has not even begun, since the engine does not reply.
pub(crate) async fn warn_of_no_connection(server: &str, limit: Duration) -> Infallible {
    sleep(SILENT_WITHOUT_TERMINAL).await;
    if !limit.is_zero() {
        warn(&format!("no connection to {server} yet; trying for up to {}", brief(limit)));
    }
    std::future::pending().await
}

struct Spinner(ProgressBar);

impl Spinner {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{spinner} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self(bar)
    }
}

/// Removes the line with the wait, so that the command starts on an empty one.
impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// The lock of exactly this name, if it is in use.
pub(crate) async fn find(keeper: &Keeper, name: &str) -> Option<LockView> {
    keeper.look(name).await.ok().flatten()
}

/// Whether this process made the claim. In containers the same process ids are on many machines.
fn is_own(claim: &ClaimView, here: &Holder) -> bool {
    !claim.foreign && claim.holder.pid == here.pid && claim.holder.machine() == here.machine()
}

async fn describe(keeper: &Keeper, names: &[String]) -> String {
    let (mut held, here) = (None, Holder::here(""));
    for name in names {
        if let Some(lock) = find(keeper, name).await {
            if let Some(line) = place_in(&lock, &here) {
                return line;
            }
            // A style without a queue shows its holder only.
            let by_others = lock.holders().any(|claim| !is_own(claim, &here));
            held = held.or(by_others.then(|| format!("waiting for {name}, held by {}", held_by(&lock))));
        }
    }
    held.unwrap_or_else(|| format!("waiting for {}", names.join(", ")))
}

/// The place of this process in the lock's queue; `None` if it does not wait there.
fn place_in(lock: &LockView, here: &Holder) -> Option<String> {
    let place = lock.waiters().position(|claim| is_own(claim, here))? + 1;
    Some(format!(
        "waiting for {}: place {place} of {}, held by {}",
        lock.name,
        lock.waiters().count(),
        held_by(lock)
    ))
}

/// The holders of a lock, in a few words.
pub(crate) fn held_by(lock: &LockView) -> String {
    let mut holders = lock.holders();
    let Some(first) = holders.next() else { return "nobody".into() };
    let more = holders.count();
    let others = if more == 0 { String::new() } else { format!(" and {more} more") };
    printable(&format!("{}{others}", who(first)))
}

/// The holder of a claim. One of another client's is marked, for lockkeeper knows little of it.
pub(crate) fn who(claim: &ClaimView) -> String {
    let mark = if claim.foreign { " (another client)" } else { "" };
    format!("{}{mark}", claim.holder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper::views::{Demand, Standing};

    #[test]
    fn the_same_process_id_on_another_machine_is_another_process() {
        let here = Holder { text: "job".into(), host: "here".into(), pid: 1 };
        let claim = |host: &str, pid| {
            ClaimView::new(
                format!("{host}{pid}"),
                Standing::Waits,
                Demand::Exclusive,
                Holder { text: "job".into(), host: host.into(), pid },
            )
        };
        let queue = |claims| LockView::from_queue("x", claims);
        let lock = queue(vec![claim("there", 7), claim("there", 1), claim("here in run 9", 1)]);
        let place = place_in(&lock, &here).expect("a place");
        assert_eq!(place, "waiting for x: place 2 of 2, held by job (there, pid 7)");
        assert_eq!(place_in(&queue(vec![claim("there", 7), claim("there", 1)]), &here), None);
        assert!(is_own(&claim("here", 1), &here) && !is_own(&claim("there", 1), &here));
    }
}
