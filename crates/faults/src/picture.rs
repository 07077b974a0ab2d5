//! Draws a run as an SVG timeline: the faults, who held the main lock with which token, what the resource refused.

use crate::cell::Run;
use crate::clients::MAIN;
use crate::resource::CLIENTS_PER_PROCESS;
use lockkeeper_conformance::history::EventKind;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 110.0;
const ROW: f64 = 34.0;
const TOP: f64 = 44.0;

/// One hold of the main lock, as its holder believed it.
struct Hold {
    token: u64,
    from_ns: u64,
    until_ns: u64,
    is_lost: bool,
}

/// The timeline.
pub(crate) fn draw(run: &Run) -> String {
    let times = run.history.events.iter().map(|event| event.at_ns).filter(|at_ns| *at_ns < u64::MAX);
    let (first, last) = times.fold((u64::MAX, 0), |(first, last), at| (first.min(at), last.max(at)));
    let span = (last.saturating_sub(first)).max(1) as f64;
    let x = |at_ns: u64| LEFT + (at_ns.saturating_sub(first)) as f64 / span * (WIDTH - LEFT - 20.0);
    let holds = holds(run, last);
    let height = TOP + ROW * (holds.len() as f64 + 2.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for strike in &run.strikes {
        let (from, until) = (x(strike.from_ns), x(strike.until_ns));
        let title = format!("{} {}", strike.fault, strike.whom);
        let _ = writeln!(
            svg,
            "<rect x=\"{from:.1}\" y=\"24\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#f3c9c2\" opacity=\"0.6\"/>\
             <text x=\"{from:.1}\" y=\"18\" fill=\"#a03020\">{}</text>",
            (until - from).max(2.0),
            height - 24.0 - ROW,
            title.trim()
        );
    }
    for (row, (process, holds)) in holds.iter().enumerate() {
        let y = TOP + ROW * row as f64;
        let _ = writeln!(svg, "<text x=\"8\" y=\"{:.1}\">worker {process}</text>", y + 14.0);
        for hold in holds {
            let (from, until) = (x(hold.from_ns), x(hold.until_ns));
            let colour = if hold.is_lost { "#d08a2a" } else { "#3b7a9e" };
            let _ = writeln!(
                svg,
                "<rect x=\"{from:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"18\" fill=\"{colour}\"><title>token {}</title></rect>",
                (until - from).max(0.6),
                hold.token
            );
            if until - from > 40.0 {
                let tail = hold.token % 1_000_000;
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#fff\" font-size=\"9\">…{tail}</text>",
                    from + 3.0,
                    y + 12.0
                );
            }
        }
    }
    let y = TOP + ROW * holds.len() as f64;
    let _ = writeln!(svg, "<text x=\"8\" y=\"{:.1}\">refused</text>", y + 14.0);
    for event in &run.history.events {
        if let EventKind::Effect { token, accepted: false } = event.kind {
            let at = x(event.at_ns);
            let _ = writeln!(
                svg,
                "<circle cx=\"{at:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"#a03020\"><title>token {token}</title></circle>",
                y + 9.0
            );
        }
    }
    let seconds = span / 1e9;
    for second in 0..=seconds as u64 {
        let at = x(first + second * 1_000_000_000);
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.1}\" fill=\"#888\" font-size=\"10\">{second} s</text>",
            height - 8.0
        );
    }
    svg + "</svg>\n"
}

/// By process, in order.
fn holds(run: &Run, end_ns: u64) -> BTreeMap<u32, Vec<Hold>> {
    let mut open: BTreeMap<u128, (u32, Hold)> = BTreeMap::new();
    let mut done: BTreeMap<u32, Vec<Hold>> = BTreeMap::new();
    let mut events: Vec<_> = run.history.events.iter().filter(|event| event.lock == MAIN).collect();
    events.sort_by_key(|event| event.at_ns);
    for event in events {
        match event.kind {
            EventKind::Granted { token, .. } => {
                let hold = Hold { token, from_ns: event.at_ns, until_ns: end_ns, is_lost: false };
                open.insert(event.claim, (event.client / CLIENTS_PER_PROCESS, hold));
            }
            EventKind::Lost | EventKind::ReleaseInvoke => {
                if let Some((process, mut hold)) = open.remove(&event.claim) {
                    hold.until_ns = event.at_ns;
                    hold.is_lost = event.kind == EventKind::Lost;
                    done.entry(process).or_default().push(hold);
                }
            }
            _ => {}
        }
    }
    for (process, hold) in open.into_values() {
        done.entry(process).or_default().push(hold);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Strike;
    use crate::fault::Fault;
    use lockkeeper_conformance::history::Recorder;
    use std::time::Duration;

    #[test]
    fn a_hold_and_a_fault_are_drawn() {
        let recorder = Recorder::new();
        let claim = recorder.claim(10_000, MAIN, 7);
        claim.invokes(0, 1, 1);
        claim.is_granted(1_000_000_000, 42, 3_000_000_000);
        claim.is_lost(2_000_000_000);
        claim.has_effect(2_500_000_000, 42, false);
        let strike = Strike {
            fault: Fault::Cut,
            whom: "worker 1".into(),
            from_ns: 10,
            until_ns: 20,
            waited: Duration::ZERO,
        };
        let run = Run {
            history: recorder.history(),
            strikes: vec![strike],
            findings: Vec::new(),
            sums: Default::default(),
            seconds: 3.0,
        };
        let svg = draw(&run);
        assert!(svg.contains("cut worker 1") && svg.contains("token 42") && svg.contains("<circle"), "{svg}");
    }
}
