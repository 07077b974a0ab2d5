//! Records what happens to the clients of real keepers, by the machine's own clock, and judges it.

use crate::checker::{Promises, check};
use crate::history::{ClaimRecorder, History, Recorder, ReleaseOutcome};
use lockkeeper::{Demand, Guard, Result};
use lockkeeper_core::engine::Clock;

fn now_ns() -> u64 {
    Clock::Boot.now().as_nanos()
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
        let (valid, at) = (guard.valid_for(), Clock::Boot.now());
        let Ok(token) = guard.token() else { return self.is_unknown(now_ns()) };
        self.is_granted(at.as_nanos(), token.0, at.plus(valid).as_nanos());
        tokio::select! {
            _ = guard.lost() => self.is_lost(now_ns()),
            () = moment => {}
        }
        self.invokes_release(now_ns());
        let outcome = match guard.release().await {
            Ok(()) => ReleaseOutcome::Released,
            Err(error) if error.is_lost() => ReleaseOutcome::NotHeld,
            Err(_) => ReleaseOutcome::Unknown,
        };
        self.release_is_done(now_ns(), outcome);
    }
}
