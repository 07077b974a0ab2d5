//! A helper process that holds a lock: it is killed, or stopped and resumed.

use crate::Result;
use crate::helper;
use crate::runtime::{self, Threads};
use crate::target::connect;
use lockkeeper::{Guard, State};
use lockkeeper_core::engine::Clock;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Longer than any run; the end of the input ends it sooner.
const LONGEST: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(5);

/// The helper's first word: it holds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Held;

/// The helper's second word: it has lost the lock. Times are nanoseconds on the boot-time clock, which all
/// processes share.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Lost {
    /// When the signal came.
    pub(crate) signal_ns: u64,
    /// The last moment at which it trusted its hold.
    pub(crate) trusted_until_ns: u64,
}

/// The helper's part.
pub(crate) fn run(url: &str, name: &str, ttl: Option<Duration>) -> Result<()> {
    runtime::run(Threads::Many, LONGEST, async {
        let keeper = connect(url, ttl).await?;
        let guard = keeper.mutex(name).lock().await?;
        let trusted_until_ns = AtomicU64::new(0);
        // Before the report: the bench may stop this process at once.
        note_trust(&guard, &trusted_until_ns);
        helper::say(&Held)?;
        std::thread::spawn(|| {
            let _ = helper::wait_for_go();
            std::process::exit(0);
        });
        tokio::select! {
            _ = guard.lost() => {}
            () = watch_trust(&guard, &trusted_until_ns) => {}
        }
        helper::say(&Lost {
            signal_ns: Clock::Boot.now().as_nanos(),
            trusted_until_ns: trusted_until_ns.load(Relaxed),
        })?;
        std::future::pending().await
    })
}

/// Notes again and again until when the hold is trusted; does not end.
async fn watch_trust(guard: &Guard, until_ns: &AtomicU64) {
    loop {
        note_trust(guard, until_ns);
        tokio::time::sleep(LOOK).await;
    }
}

fn note_trust(guard: &Guard, until_ns: &AtomicU64) {
    let (now, valid_for) = (Clock::Boot.now(), guard.valid_for());
    if guard.state() != State::Lost && !valid_for.is_zero() {
        until_ns.fetch_max(now.plus(valid_for).as_nanos(), Relaxed);
    }
}
