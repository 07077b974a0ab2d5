//! The command under its lock: passes signals on, and ends it before the hold ends.

use crate::child::Child;
use crate::exit::{Failure, LEASE_ENDED, LOST};
use crate::output::warn;
use crate::signals::Signals;
use crate::table::brief;
use lockkeeper::{Error, Guard, LostReason, State};
use rustix::process::Signal;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// What to do with the command when its lock is lost or its lease ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    /// Send TERM while the lock is still held, and KILL when the hold ends
    #[default]
    Term,
    /// Send KILL
    Kill,
    /// Print a warning, and let it run
    Ignore,
}

/// What to do with the command when somebody asks for its lock ('lockkeeper evict --ask').
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnAsk {
    /// Send TERM once; the lock is released when the command has ended
    #[default]
    Term,
    /// Print a message, and let it run
    Ignore,
}

/// How a running command is supervised.
pub(crate) struct Watch<'a> {
    pub(crate) guard: &'a Guard,
    pub(crate) on_lost: OnLost,
    pub(crate) on_ask: OnAsk,
    pub(crate) ttl: Duration,
    pub(crate) lease: Option<Duration>,
}

/// Why a command has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Its lock is lost, or will be soon.
    Lost,
    /// Its lease ends, as planned.
    Lease,
}

/// How far the end of a command has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It runs under its lock.
    Running,
    /// It was sent TERM, and is killed at this moment.
    Ending(Cause, Instant),
    /// It was killed.
    Killed(Cause),
    /// It runs without the lock, as the user asked.
    Ignored,
}

/// How long before the end of a hold or a lease a command gets TERM.
fn grace(whole: Duration) -> Duration {
    (whole / 3).min(Duration::from_secs(2))
}

impl Watch<'_> {
    /// Waits for the command's end, and makes it end in time if the hold ends first.
    pub(crate) async fn until_end(&self, child: &mut Child, signals: &mut Signals) -> Result<u8, Failure> {
        let mut stage = Stage::Running;
        let (mut lost_seen, mut ask_seen) = (false, false);
        let status = loop {
            let kill_at = if let Stage::Ending(_, moment) = stage { Some(moment) } else { None };
            // Loss first: a command must not be woken or left running because something else is ready, too.
            tokio::select! {
                biased;
                error = self.guard.lost(), if !lost_seen => {
                    // One that has ended by itself in the meantime is not ended by the loss.
                    if let Some(status) = child.has_ended().filter(|_| stage == Stage::Running) {
                        break status;
                    }
                    lost_seen = true;
                    stage = self.lost(child, stage, &error);
                }
                cause = self.endangered(), if stage == Stage::Running => stage = self.give_up(child, cause),
                () = self.guard.release_requested(), if !ask_seen && stage == Stage::Running => {
                    ask_seen = true;
                    self.asked(child);
                }
                () = sleep_until(kill_at.unwrap_or_else(Instant::now)), if kill_at.is_some() => {
                    child.signal(Signal::KILL);
                    if let Stage::Ending(cause, _) = stage {
                        stage = Stage::Killed(cause);
                    }
                }
                status = child.ended() => break status,
                signal = signals.next() => child.pass_on(signal),
            }
        };
        match stage {
            Stage::Running | Stage::Ignored => Ok(status),
            Stage::Ending(cause, kill_at) => {
                end_the_rest(child, kill_at).await;
                Err(self.ended_by(cause))
            }
            Stage::Killed(cause) => Err(self.ended_by(cause)),
        }
    }

    /// Resolves when so little of the hold or the lease is left that the command must end.
    ///
    /// A hold in doubt is given up a grace period before its deadline. One that is merely late (the process was
    /// stopped for a while) has half of that to be renewed.
    async fn endangered(&self) -> Cause {
        let hold_grace = grace(self.ttl);
        let lease_grace = self.lease.map_or(Duration::ZERO, grace);
        loop {
            let left = self.guard.valid_for();
            let lease_left = self.guard.lease_left().unwrap_or(Duration::MAX);
            if lease_left <= lease_grace {
                return Cause::Lease;
            }
            let until_lease = lease_left - lease_grace;
            // The hold is good to the end of the lease.
            if lease_left <= left {
                sleep(until_lease).await;
                continue;
            }
            let doubted = self.guard.state() != State::Held;
            let least = if doubted { hold_grace } else { hold_grace / 2 };
            if left <= least {
                return Cause::Lost;
            }
            let pause =
                if left > hold_grace { left - hold_grace } else { (left - least).min(hold_grace / 20) };
            sleep(pause.min(until_lease)).await;
        }
    }

    /// Somebody asks for the lock. It stays held until the command has ended, however long that takes.
    fn asked(&self, child: &Child) {
        match self.on_ask {
            OnAsk::Term => {
                warn("somebody asks for the lock: sending TERM to the command");
                child.terminate();
            }
            OnAsk::Ignore => warn("somebody asks for the lock; the command runs on, as --on-ask ignore says"),
        }
    }

    /// The hold ends soon: ends the command while the lock still protects it.
    fn give_up(&self, child: &Child, cause: Cause) -> Stage {
        let left = self.guard.valid_for();
        let what = match cause {
            Cause::Lost => "the lock cannot be renewed".into(),
            Cause::Lease => format!("the lease ends in {}", brief(left)),
        };
        match self.on_lost {
            OnLost::Term => {
                warn(&format!("{what}: sending TERM to the command"));
                child.terminate();
                Stage::Ending(cause, Instant::now() + left)
            }
            OnLost::Kill => {
                warn(&format!("{what}: killing the command"));
                child.signal(Signal::KILL);
                Stage::Killed(cause)
            }
            OnLost::Ignore => Stage::Ignored,
        }
    }

    /// The hold has ended. At its deadline the command must be gone; if the lock was taken away before that, the
    /// command still has the time to end in good order.
    fn lost(&self, child: &Child, stage: Stage, error: &Error) -> Stage {
        let reason = if let Error::Lost { reason, .. } = error { Some(*reason) } else { None };
        let (cause, what) = match reason {
            Some(LostReason::LeaseEnded) => (Cause::Lease, "the lease has ended".to_owned()),
            _ => (Cause::Lost, error.to_string()),
        };
        warn(&what);
        match (self.on_lost, stage) {
            (OnLost::Ignore, _) => {
                warn("the command runs on without the lock, as --on-lost ignore asks");
                Stage::Ignored
            }
            (OnLost::Term, Stage::Running) if reason == Some(LostReason::Gone) => {
                child.terminate();
                Stage::Ending(cause, Instant::now() + grace(self.ttl))
            }
            (OnLost::Term | OnLost::Kill, Stage::Ending(first, _) | Stage::Killed(first)) => {
                child.signal(Signal::KILL);
                Stage::Killed(first)
            }
            (OnLost::Term | OnLost::Kill, _) => {
                child.signal(Signal::KILL);
                Stage::Killed(cause)
            }
        }
    }

    fn ended_by(&self, cause: Cause) -> Failure {
        match cause {
            Cause::Lost => Failure::new(LOST, "the command was ended because its lock was lost"),
            Cause::Lease => {
                let lease = self.lease.map(brief).unwrap_or_default();
                Failure::new(
                    LEASE_ENDED,
                    format!("the command was ended because its lease of {lease} was over"),
                )
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
