//! What has changed between two looks at the locks: a line of text for each change, or an object.

use crate::exit::Failure;
use crate::json;
use crate::table::{brief, printable, standing_for};
use lockkeeper::views::{ClaimView, LockView, Standing, Waits, deadlocks};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// What was seen at the last look.
#[derive(Default)]
pub(super) struct Seen {
    locks: Vec<LockView>,
    deadlocks: BTreeSet<String>,
}

/// One change: of a claim, or a new deadlock.
#[derive(Serialize)]
struct Change<'a> {
    time: &'a str,
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    claim: Option<json::Claim<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadlock: Option<Vec<json::Wait<'a>>>,
}

impl<'a> Change<'a> {
    fn of_claim(time: &'a str, event: &'a str, name: &'a str, claim: json::Claim<'a>) -> Self {
        Self { time, event, name: Some(name), claim: Some(claim), deadlock: None }
    }

    fn deadlock(time: &'a str, circle: &[Waits<'a>]) -> Self {
        let waits = circle.iter().map(json::Wait::from).collect();
        Self { time, event: "deadlock", name: None, claim: None, deadlock: Some(waits) }
    }
}

/// The changes of one look.
struct Report {
    time: String,
    as_json: bool,
    text: String,
}

impl Report {
    fn claim(&mut self, event: &str, name: &str, claim: json::Claim<'_>) -> Result<(), Failure> {
        let (view, time) = (&claim.claim, &self.time);
        let token =
            view.token.filter(|_| event != LEFT).map_or_else(String::new, |token| format!(" token={token}"));
        let (who, id) = (describe(view), &view.id);
        let line = format!("{time} {event} {name} {who} claim={id}{token}{}", times(view));
        let change = Change::of_claim(time, event, name, claim);
        self.text += &if self.as_json { json::line(&change)? } else { printable(&line) + "\n" };
        Ok(())
    }

    fn deadlock(&mut self, circle: &[Waits<'_>], words: &str) -> Result<(), Failure> {
        let (change, line) =
            (Change::deadlock(&self.time, circle), format!("{} deadlock? {words}", self.time));
        self.text += &if self.as_json { json::line(&change)? } else { printable(&line) + "\n" };
        Ok(())
    }
}

const LEFT: &str = "left";

impl Seen {
    /// A line for every claim that came, was granted or left since the last look, and for every new deadlock;
    /// those that left in the order of their queue.
    pub(super) fn changes(&mut self, locks: &[LockView], as_json: bool) -> Result<String, Failure> {
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let mut report = Report { time, as_json, text: String::new() };
        let before: BTreeMap<&str, Standing> =
            claims(&self.locks).map(|(_, claim)| (&*claim.id, claim.standing)).collect();
        let present: BTreeSet<&str> = claims(locks).map(|(_, claim)| &*claim.id).collect();
        for (lock, claim) in claims(&self.locks).filter(|(_, claim)| !present.contains(&*claim.id)) {
            report.claim(LEFT, &lock.name, json::Claim::alone(claim))?;
        }
        for lock in locks {
            for (index, claim) in lock.claims.iter().enumerate() {
                if before.get(&*claim.id) != Some(&claim.standing) {
                    report.claim(&claim.standing.to_string(), &lock.name, json::Claim::new(lock, index))?;
                }
            }
        }
        let mut circles = BTreeSet::new();
        for circle in deadlocks(locks) {
            let words = circle.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            if !self.deadlocks.contains(&words) {
                report.deadlock(&circle, &words)?;
            }
            circles.insert(words);
        }
        *self = Self { locks: locks.to_vec(), deadlocks: circles };
        Ok(report.text)
    }
}

fn claims(locks: &[LockView]) -> impl Iterator<Item = (&LockView, &ClaimView)> {
    locks.iter().flat_map(|lock| lock.claims.iter().map(move |claim| (lock, claim)))
}

/// How long the claim has held and waited, as far as the engine knows.
fn times(claim: &ClaimView) -> String {
    let time = standing_for(claim);
    match (claim.standing, claim.age, claim.held_for) {
        (Standing::Holds, Some(age), Some(held)) => {
            format!(" held={time} waited={}", brief(age.saturating_sub(held)))
        }
        (Standing::Holds, ..) => format!(" held={time}"),
        _ => format!(" waited={time}"),
    }
}

/// The holder of a claim, as words of a line.
pub(crate) fn describe(claim: &ClaimView) -> String {
    if claim.foreign {
        return format!("who={:?} client=another", claim.holder.text);
    }
    let run = claim.holder.run().map_or_else(String::new, |run| format!(" run={run}"));
    format!("who={:?} host={} pid={}{run}", claim.holder.text, claim.holder.machine(), claim.holder.pid)
}
