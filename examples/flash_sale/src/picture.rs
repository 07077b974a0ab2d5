//! The picture in the terminal: what was sold, in which order, and how long people waited.

use crate::sale::Outcome;
use std::fmt::Write;

/// The widest bar, in characters.
const WIDE: u32 = 60;

/// Draws the outcome of one sale.
pub(crate) fn draw(outcome: &Outcome) -> String {
    let mut text = String::new();
    let title = if outcome.locked { "With the lock" } else { "Without a lock" };
    let _ = writeln!(text, "{title}: {} hair dryers, {} buyers", outcome.stock, outcome.buyers);
    let most = outcome.sold.max(outcome.stock).max(1);
    let scale = |count: u32| "█".repeat((count * WIDE).div_ceil(most) as usize);
    let _ = writeln!(text, "  in stock  {} {}", scale(outcome.stock), outcome.stock);
    let good = outcome.sold - outcome.oversold;
    let bad = "░".repeat((outcome.oversold * WIDE).div_ceil(most) as usize);
    let _ = writeln!(text, "  sold      {}{bad} {}", scale(good), outcome.sold);
    let verdict = match outcome.oversold {
        0 => "nobody was sold a hair dryer that is not there".to_owned(),
        many => format!("{many} OVERSOLD: paid for and not there"),
    };
    let _ = writeln!(text, "            {verdict}");
    if outcome.locked {
        let order =
            if outcome.in_order { "every token larger than the one before" } else { "tokens OUT OF ORDER" };
        let _ = writeln!(text, "  order     {order}");
    }
    let _ = writeln!(text, "  waits     {}", waits(&outcome.waits_ms));
    if let Some(delay) = outcome.delay_after_crash_ms {
        let _ = writeln!(
            text,
            "  crash     a server died holding the lock; the next buyer was served {delay:.1} ms later"
        );
    }
    text.push('\n');
    text
}

/// One small bar per sale, as high as its wait was long.
fn waits(waits_ms: &[f64]) -> String {
    const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let longest = waits_ms.iter().copied().fold(0.0, f64::max);
    if waits_ms.is_empty() {
        return "nobody was served".into();
    }
    let step = |wait: &f64| STEPS[((wait / longest.max(f64::MIN_POSITIVE)) * 7.0).round() as usize % 8];
    let bars: String = waits_ms.iter().take(WIDE as usize).map(step).collect();
    format!("{bars} up to {longest:.0} ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oversold_sale_is_shown_as_such() {
        let outcome = Outcome {
            locked: false,
            crashed: false,
            stock: 2,
            buyers: 5,
            sold: 3,
            oversold: 1,
            in_order: false,
            waits_ms: vec![0.0, 1.0, 2.0],
            delay_after_crash_ms: None,
        };
        let text = draw(&outcome);
        assert!(text.contains("1 OVERSOLD") && text.contains('░'), "{text}");
    }
}
