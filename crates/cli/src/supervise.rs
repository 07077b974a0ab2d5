//! The command under its lock: runs it, passes signals on, and ends it before the hold does.

use crate::child::Child;
use crate::exit::{Failure, LOST};
use crate::output::warn;
use crate::signals::Signals;
use lockkeeper::{Error, Guard, LostReason, State};
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// What to do with the command when the lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    /// Ask it to end (SIGTERM), and kill it before the hold ends
    Term,
    /// Kill it at once
    Kill,
    /// Warn, and let it run on
    Ignore,
}

/// How a command's run is watched.
pub(crate) struct Watch<'a> {
    pub(crate) guard: &'a Guard,
    pub(crate) on_lost: OnLost,
    pub(crate) ttl: Duration,
    pub(crate) lease: Option<Duration>,
}

/// How far the end of a command whose lock is lost has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is wrong.
    Calm,
    /// The command was asked to end, and is killed at this moment.
    Ending(Instant),
    /// It was killed.
    Killed,
    /// The user wants no action.
    Ignored,
}

impl Watch<'_> {
    /// How long before its deadline a hold in doubt is given up, so that the command has time to end.
    fn grace(&self) -> Duration {
        let shortest = self.lease.map_or(self.ttl, |lease| lease.min(self.ttl));
        (shortest / 3).min(Duration::from_secs(2))
    }

    /// Waits for the command's end, and makes it end in time if the hold does first.
    pub(crate) async fn until_end(&self, child: &mut Child, signals: &mut Signals) -> Result<u8, Failure> {
        let mut stage = Stage::Calm;
        let mut lost_seen = false;
        let status = loop {
            let kill_at = if let Stage::Ending(moment) = stage { Some(moment) } else { None };
            // Loss first: a command must not be woken or left running because something else is ready, too.
            tokio::select! {
                biased;
                error = self.guard.lost(), if !lost_seen => {
                    lost_seen = true;
                    stage = self.lost(child, stage, &error);
                }
                () = self.endangered(), if stage == Stage::Calm => stage = self.give_up(child),
                () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                    child.signal(Signal::KILL);
                    stage = Stage::Killed;
                }
                status = child.ended() => break status,
                signal = signals.next() => child.pass_on(signal),
            }
        };
        match stage {
            Stage::Calm | Stage::Ignored => Ok(status),
            Stage::Ending(kill_at) => {
                end_the_rest(child, kill_at).await;
                Err(ended_by_loss())
            }
            Stage::Killed => Err(ended_by_loss()),
        }
    }

    /// Resolves when so little of the hold is left that the command must be told.
    ///
    /// A hold in doubt is given up a grace period before its deadline. One that is merely late (we were stopped
    /// for a while) has half of that to be renewed.
    async fn endangered(&self) {
        let grace = self.grace();
        loop {
            let left = self.guard.valid_for();
            let doubted = self.guard.state() != State::Held || self.lease.is_some();
            let least = if doubted { grace } else { grace / 2 };
            if left <= least {
                return;
            }
            sleep(if left > grace { left - grace } else { (left - least).min(grace / 20) }).await;
        }
    }

    /// The hold will probably be lost: ends the command while the lock still protects it.
    fn give_up(&self, child: &Child) -> Stage {
        let left = self.guard.valid_for();
        let what =
            if self.lease.is_some() { "the lease is nearly over" } else { "the lock cannot be renewed" };
        match self.on_lost {
            OnLost::Term => {
                warn(&format!("{what}: asking the command to end"));
                child.terminate();
                Stage::Ending(Instant::now() + left)
            }
            OnLost::Kill => {
                warn(&format!("{what}: killing the command"));
                child.signal(Signal::KILL);
                Stage::Killed
            }
            OnLost::Ignore => Stage::Ignored,
        }
    }

    /// The hold is lost. At its deadline the command must be gone; if it was taken from us before that, the command
    /// may still end in good order.
    fn lost(&self, child: &Child, stage: Stage, error: &Error) -> Stage {
        warn(&error.to_string());
        let taken = matches!(error, Error::Lost { reason: LostReason::Gone, .. });
        match self.on_lost {
            OnLost::Ignore => {
                warn("the command runs on without the lock, as --on-lost ignore asks");
                Stage::Ignored
            }
            OnLost::Term if taken && stage == Stage::Calm => {
                child.terminate();
                Stage::Ending(Instant::now() + self.grace())
            }
            OnLost::Term | OnLost::Kill => {
                child.signal(Signal::KILL);
                Stage::Killed
            }
        }
    }
}

/// The command has ended, but its process group may have members that take longer.
async fn end_the_rest(child: &Child, kill_at: Instant) {
    while child.group_lives() {
        if Instant::now() >= kill_at {
            child.signal(Signal::KILL);
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
}

fn ended_by_loss() -> Failure {
    Failure::new(LOST, "the command was ended because its lock was lost")
}
