//! Checks a right history of a million events and says how long that took.

use std::time::{Duration, Instant};

use lockkeeper_conformance::checker::simulation::{busy_plans, simulate};
use lockkeeper_conformance::checker::{Promises, check};

fn main() {
    let history = simulate(&busy_plans(180_000, 16, 4, 1), 4);
    let promises = Promises::safety().first_come_first_served().lively_within(Duration::from_millis(1));

    let start = Instant::now();
    let violations = check(&history, &promises);
    let took = start.elapsed();

    let (events, found) = (history.events.len(), violations.len());
    println!("{events} events, {found} violations, {took:.0?}");
    violations.iter().take(10).for_each(|violation| println!("{violation}"));
}
