//! The table of facts.

use super::belief::Fact;
use super::{Fault, Results, Saved, TTL};
use crate::catalog::FAULTED;
use std::collections::BTreeMap;

/// Shorter than a step of anybody's work, and than what this measures.
const NOTHING: f64 = 0.05;

/// A row for each peer, ours among them.
pub fn table(saved: &Saved) -> String {
    let mut text = format!(
        "{}, {} runs of each fault, TTL {TTL:?}.{}\n\n",
        saved.machine.line(),
        saved.repetitions,
        saved.machine.caveat()
    );
    text += "| lock | asked of it | holder paused beyond the TTL | holder cut off | server killed, its data kept \
             | server killed, its data lost | leader of three killed | given up, yet held on | token |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    for peer in FAULTED {
        let Some(results) = saved.peers.get(peer.name) else { continue };
        let name = if peer.rival.is_none() { format!("lockkeeper {}", peer.name) } else { peer.name.into() };
        let cells = Fault::ALL.map(|fault| cell(&results.faults, fault)).join(" | ");
        let orphans = results.orphans.map_or("–".into(), |(orphans, of)| match orphans {
            0 => format!("0 of {of}"),
            _ => format!("**{orphans} of {of}**"),
        });
        let asked = peer.safety;
        text += &format!("| {name} | {asked} | {cells} | {orphans} | {} |\n", token(results));
    }
    text
}

fn token(results: &Results) -> &'static str {
    match results.token {
        None => "none",
        Some(true) => "grows",
        Some(false) => "**went back**",
    }
}

fn cell(faults: &BTreeMap<Fault, Vec<Fact>>, fault: Fault) -> String {
    let Some(facts) = faults.get(&fault) else { return "–".into() };
    let (all, two) = (facts.len(), facts.iter().filter(|fact| fact.overlap > NOTHING).count());
    if two > 0 {
        let longest = facts.iter().map(|fact| fact.overlap).fold(0.0, f64::max);
        let end = if facts.iter().all(|fact| fact.has_ended || fact.overlap <= NOTHING) {
            format!("up to {}", seconds(longest))
        } else {
            "never told".into()
        };
        return format!("**two holders** in {two} of {all}, {end}");
    }
    if facts.iter().all(|fact| !fact.is_passed_on) {
        let told = facts.iter().filter(|fact| fact.told_after.is_some()).count();
        return if told == 0 { "kept".into() } else { format!("kept; told of a loss in {told} of {all}") };
    }
    if fault == Fault::Pause {
        return "one; knows at its first look".into();
    }
    let least =
        facts.iter().filter(|fact| fact.is_passed_on).map(|fact| fact.ahead).fold(f64::INFINITY, f64::min);
    format!("one; knows {} before", seconds(least))
}

fn seconds(seconds: f64) -> String {
    if seconds < 0.095 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(overlap: f64, ahead: f64, has_ended: bool) -> BTreeMap<Fault, Vec<Fact>> {
        let fact = Fact { is_passed_on: true, overlap, ahead, has_ended, told_after: None };
        BTreeMap::from([(Fault::Cut, vec![fact.clone(), fact])])
    }

    #[test]
    fn the_worst_run_is_told() {
        assert_eq!(cell(&facts(0.0, 0.6, true), Fault::Cut), "one; knows 0.6 s before");
        assert_eq!(cell(&facts(1.25, 0.0, true), Fault::Cut), "**two holders** in 2 of 2, up to 1.2 s");
        assert_eq!(cell(&facts(3.0, 0.0, false), Fault::Cut), "**two holders** in 2 of 2, never told");
        assert_eq!(cell(&facts(3.0, 0.0, false), Fault::Pause), "–");
    }
}
