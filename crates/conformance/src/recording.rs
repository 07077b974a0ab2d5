//! Records what happens to the clients of real keepers, by the machine's own clock, and judges it.

use crate::checker::{Promises, check};
use crate::history::{ClaimRecorder, History, Recorder, ReleaseOutcome};
use lockkeeper::views::Demand;
use lockkeeper::{Guard, Result, State};
use lockkeeper_core::engine::{Clock, Moment};
use std::time::Duration;

fn now_ns() -> u64 {
    Clock::Boot.now().as_nanos()
}

/// How often a hold is looked at for a new deadline.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// This moment, and until when the hold is trusted. The clock is read first: a test that is held up between the two reads sees a
/// deadline that is early, not one that nobody was given.
fn trusted_until(guard: &Guard) -> (Moment, Moment) {
    let at = Clock::Boot.now();
    (at, at.plus(guard.valid_for()))
}

impl Recorder {
    /// A client is about to ask for a lock. The story gets a number: the claim's real id is not known yet.
    pub fn asks(&self, client: u32, lock: u32, demand: Demand) -> ClaimRecorder {
        let story = self.claim(client, lock, rand::random());
        story.invokes(now_ns(), demand.weight() as u32, demand.limit() as u32);
        story
    }

    /// What was recorded, which must be safe.
    ///
    /// # Panics
    ///
    /// When it is not, with everything that is wrong.
    pub fn judged(&self) -> History {
        let history = self.history();
        let violations = check(&history, &Promises::safety());
        assert!(
            violations.is_empty(),
            "{}",
            violations.iter().map(|it| format!("{it}\n")).collect::<String>()
        );
        history
    }
}

impl ClaimRecorder {
    /// What was asked for has come to this. A lock is held for a moment, or until it is lost, and released.
    pub async fn gets(&self, asked: Result<Option<Guard>>, moment: impl Future<Output = ()>) {
        match asked {
            Ok(Some(guard)) => self.holds(guard, moment).await,
            Ok(None) => self.is_cancelled(now_ns()),
            Err(_) => self.is_unknown(now_ns()),
        }
    }

    async fn holds(&self, guard: Guard, moment: impl Future<Output = ()>) {
        let (at, deadline) = trusted_until(&guard);
        let Ok(token) = guard.token() else { return self.is_unknown(now_ns()) };
        self.is_granted(at.as_nanos(), token.0, deadline.as_nanos());
        tokio::select! {
            _ = guard.lost() => self.is_lost(now_ns()),
            () = moment => {}
            () = self.is_kept(&guard, deadline) => {}
        }
        self.invokes_release(now_ns());
        let outcome = match guard.release().await {
            Ok(()) => ReleaseOutcome::Released,
            Err(error) if error.is_lost() => ReleaseOutcome::NotHeld,
            Err(_) => ReleaseOutcome::Unknown,
        };
        self.release_is_done(now_ns(), outcome);
    }

    /// Records each renewal by the deadline that it brings; does not end.
    async fn is_kept(&self, guard: &Guard, mut until: Moment) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let (at, deadline) = trusted_until(guard);
            if deadline > until.plus(LOOK_EVERY) && guard.state() != State::Lost {
                until = deadline;
                self.is_renewed(at.as_nanos(), deadline.as_nanos());
            }
        }
    }
}
