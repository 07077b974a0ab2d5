//! How long a holder believes that it holds, by what its library says by itself and when it is asked.

use crate::program::Program;
use lockkeeper_bench::Result;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(10);

/// What the holder was told, and what it found when it asked.
#[derive(Debug)]
pub struct Belief {
    since: Instant,
    /// The library said that the lock is lost.
    told: Option<Instant>,
    /// The last time that its check said that the lock is held.
    said_held: Option<Instant>,
    /// The first time that its check said anything else.
    said_lost: Option<Instant>,
    /// It has no check.
    has_none: bool,
    /// Until when it was watched.
    until: Instant,
}

/// What came out of a fault. Times are in seconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fact {
    /// Whether somebody else got the lock.
    pub is_passed_on: bool,
    /// How long there were two holders.
    pub overlap: f64,
    /// How long before the next holder the former one knew.
    pub ahead: f64,
    /// Whether the former holder learned it at all.
    pub has_ended: bool,
    /// Whether the library said it by itself, after how long.
    pub told_after: Option<f64>,
}

impl Belief {
    pub fn since(since: Instant) -> Self {
        Self { since, told: None, said_held: None, said_lost: None, has_none: false, until: since }
    }

    /// When it ended: a holder that asks before each step does nothing after the last time that the check said yes, be it that it
    /// says no or that no reply comes.
    fn end(&self) -> Option<Instant> {
        let asked = match (self.said_held, self.said_lost) {
            _ if self.has_none => None,
            (held, Some(_)) => Some(held.unwrap_or(self.since)),
            // Unanswered to the end.
            (held, None) => Some(held.unwrap_or(self.since)).filter(|held| self.until - *held > PAUSE * 20),
        };
        match (self.told, asked) {
            (Some(told), Some(asked)) => Some(told.min(asked)),
            (told, asked) => told.or(asked),
        }
    }

    /// Against the time of the next grant.
    pub fn against(&self, granted: Option<Instant>) -> Fact {
        let end = self.end();
        let seconds = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64();
        let last = end.unwrap_or(self.until);
        Fact {
            is_passed_on: granted.is_some(),
            overlap: granted.map_or(0.0, |granted| seconds(granted, last)),
            ahead: granted.map_or(0.0, |granted| seconds(last, granted)),
            has_ended: end.is_some(),
            told_after: self.told.map(|told| seconds(self.since, told)),
        }
    }
}

/// Asks the holder again and again.
pub fn watch(holder: &mut Program, check: &str, belief: &mut Belief, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        belief.told = belief.told.or(holder.told("a")?);
        while let Some((at, reply)) = holder.reply_within("a", Duration::ZERO)? {
            match reply.as_str() {
                "held" if belief.said_lost.is_none() => belief.said_held = Some(at),
                "unknown" => belief.has_none = true,
                _ => belief.said_lost = belief.said_lost.or(Some(at)),
            }
        }
        belief.until = Instant::now();
        if belief.until >= end {
            return Ok(());
        }
        if !belief.has_none && !holder.is_busy("a") {
            holder.send(check)?;
        }
        std::thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_holder_that_was_told_before_the_grant_is_no_second_one() {
        let start = Instant::now();
        let mut belief = Belief { told: Some(start + ms(500)), ..Belief::since(start) };
        belief.has_none = true;
        belief.until = start + ms(4000);
        let fact = belief.against(Some(start + ms(800)));
        assert_eq!((fact.overlap, fact.ahead, fact.told_after), (0.0, 0.3, Some(0.5)));
    }

    #[test]
    fn a_holder_that_is_never_told_is_a_second_one_as_long_as_it_is_watched() {
        let start = Instant::now();
        let belief =
            Belief { said_held: Some(start + ms(4000)), until: start + ms(4000), ..Belief::since(start) };
        let fact = belief.against(Some(start + ms(1000)));
        assert_eq!((fact.overlap, fact.has_ended), (3.0, false));
    }

    #[test]
    fn a_check_that_gets_no_reply_ends_the_belief() {
        let start = Instant::now();
        let belief =
            Belief { said_held: Some(start + ms(100)), until: start + ms(4000), ..Belief::since(start) };
        let fact = belief.against(Some(start + ms(2000)));
        assert_eq!((fact.overlap, fact.ahead, fact.has_ended), (0.0, 1.9, true));
    }

    #[test]
    fn a_first_look_that_says_no_ends_it_before_anything_is_done() {
        let start = Instant::now();
        let belief =
            Belief { said_lost: Some(start + ms(1)), until: start + ms(3000), ..Belief::since(start) };
        assert_eq!(belief.against(Some(start)).overlap, 0.0);
    }
}
