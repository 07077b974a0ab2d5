//! What a person sees while a command waits for its lock: a spinner with the place in the queue and who holds.

use crate::output::warn;
use crate::table::printable;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockkeeper::{Keeper, LockView, Standing};
use std::convert::Infallible;
use std::io::IsTerminal;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Short waits pass without a word.
const SILENT_FOR: Duration = Duration::from_millis(300);
/// One turn of the spinner.
const TURN: Duration = Duration::from_millis(100);
/// How often the engine is asked.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Shows the wait until it is dropped. Without a terminal on standard error it does nothing at all.
pub(crate) async fn show(keeper: &Keeper, names: &[String]) -> Infallible {
    if !std::io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    sleep(SILENT_FOR).await;
    let spinner = Spinner::new();
    let mut asked = None;
    loop {
        if asked.is_none_or(|moment: Instant| moment.elapsed() >= ASK_EVERY) {
            spinner.0.set_message(describe(keeper, names).await);
            asked = Some(Instant::now());
        }
        spinner.0.tick();
        sleep(TURN).await;
    }
}

/// A call inside a command that already runs under the lock waits for itself, for ever. It could mean the same
/// name on another engine, so this is said only once it has waited, and it waits on.
pub(crate) async fn warn_of_itself(names: &[String]) -> Infallible {
    let held = std::env::var("LOCKKEEPER_LOCK").unwrap_or_default();
    if let Some(name) = names.iter().find(|name| held == **name || held.split(',').any(|held| held == **name))
    {
        sleep(SILENT_FOR).await;
        warn(&format!("already runs under '{name}' (LOCKKEEPER_LOCK says so), so this may wait for itself"));
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

/// The line goes when the wait does, so that the command starts on a clean one.
impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

async fn describe(keeper: &Keeper, names: &[String]) -> String {
    for name in names {
        if let Ok(locks) = keeper.inspect_at_most(name, 100).await
            && let Some(lock) = locks.into_iter().find(|lock| lock.name == *name)
            && let Some(line) = place_in(&lock, std::process::id())
        {
            return line;
        }
    }
    format!("waiting for {}", names.join(", "))
}

/// Where this process stands in the lock's queue; `None` if it does not wait there.
fn place_in(lock: &LockView, pid: u32) -> Option<String> {
    let waiters = || lock.claims.iter().filter(|claim| claim.standing == Standing::Waits);
    let place = waiters().position(|claim| claim.holder.pid == pid)? + 1;
    Some(format!(
        "waiting for {}: place {place} of {}, held by {}",
        lock.name,
        waiters().count(),
        held_by(lock)
    ))
}

/// Who holds a lock, in a few words.
pub(crate) fn held_by(lock: &LockView) -> String {
    let mut holders = lock.holders();
    let Some(first) = holders.next() else { return "nobody".into() };
    let more = holders.count();
    let others = if more == 0 { String::new() } else { format!(" and {more} more") };
    printable(&format!("{}{others}", first.holder))
}
