//! `lockkeeper ls`: the locks in use.

use crate::arguments::EngineOptions;
use crate::exit::{Outcome, SUCCESS};
use crate::table::{Column, brief, layout, or_dash, printable, standing_for, width, wrap};
use crate::waiting::held_by;
use crate::{complete, json, location, output};
use clap::Args;
use clap_complete::ArgValueCompleter;
use lockkeeper::views::{LockView, Waits, deadlocks};
use std::io::IsTerminal;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  lockkeeper ls                  every lock in use
  lockkeeper ls orders/          those whose name begins with orders/
  lockkeeper ls --json | jq -r '.[].name'";

/// List the locks in use with their holders and waiters, and deadlocks among them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ls {
    /// Only locks whose name begins with PREFIX
    #[arg(default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::names))]
    prefix: String,

    /// Print JSON, with every claim
    #[arg(long)]
    json: bool,

    /// Print all columns in full, however wide
    #[arg(long, conflicts_with = "json")]
    wide: bool,
}

impl Ls {
    /// Looks once and prints.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        let keeper = options.connect(None).await?;
        let locks = location::locks(&keeper, &self.prefix).await?;
        if self.json {
            output::print_json(&json::Lock::list(&keeper, &locks))?
        } else {
            let columns = width(self.wide);
            let mut text = list(&locks, columns) + &circles(&locks, columns);
            // For people only: a program counts the lines.
            if locks.is_empty() && std::io::stdout().is_terminal() {
                text += &nothing(&location::describe(options, &keeper)?);
            }
            output::print(&text)?
        };
        keeper.close().await;
        Ok(SUCCESS)
    }
}

/// The line that stands for an empty table.
pub(crate) fn nothing(place: &str) -> String {
    format!("no locks in use at {place}\n")
}

/// The processes that wait for each other, if there are any; of fair styles only, for the others show no waiters.
pub(crate) fn circles(locks: &[LockView], width: Option<usize>) -> String {
    describe(deadlocks(locks), width)
}

pub(crate) fn describe(circles: Vec<Vec<Waits<'_>>>, width: Option<usize>) -> String {
    let mut text = String::new();
    for circle in circles {
        text.push('\n');
        text += &wrap("deadlock? These wait for each other (end one, or evict a claim):", width);
        for wait in circle {
            text += &wrap(&format!("  {}", printable(&wait.to_string())), width);
        }
    }
    text
}

const COLUMNS: [Column; 7] = [
    Column::new("NAME").cut_to(10),
    Column::new("AS").optional(1),
    Column::new("HOLD"),
    Column::new("WAIT"),
    Column::new("FOR").optional(3),
    Column::new("WAITED").optional(2),
    Column::new("HELD BY").cut_to(8),
];

/// One line per lock.
pub(crate) fn list(locks: &[LockView], width: Option<usize>) -> String {
    let rows = locks.iter().map(|lock| {
        let oldest = lock.holders().max_by_key(|claim| claim.standing_for().or(claim.age));
        let kind = lock.claims.first().map(|claim| claim.demand);
        vec![
            lock.name.clone(),
            or_dash(kind, |demand| demand.to_string()),
            lock.holders().count().to_string(),
            lock.waiters().count().to_string(),
            or_dash(oldest, standing_for),
            or_dash(oldest_wait(lock), brief),
            held_by(lock),
        ]
    });
    layout(&COLUMNS, rows.collect(), width)
}

/// For how long the first in the queue has waited.
pub(crate) fn oldest_wait(lock: &LockView) -> Option<Duration> {
    lock.waiters().filter_map(|claim| claim.age).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper::Holder;
    use lockkeeper::views::{ClaimView, Demand, Standing};

    #[test]
    fn deadlocks_are_listed_below_the_table() {
        let claim = |pid: u32| {
            ClaimView::new(
                pid.to_string(),
                Standing::Waits,
                Demand::Exclusive,
                Holder { text: "job".into(), host: "app".into(), pid },
            )
        };
        let a = LockView::from_queue("a", vec![claim(1), claim(2)]);
        let b = LockView::from_queue("b", vec![claim(2), claim(1)]);
        assert_eq!(circles(std::slice::from_ref(&a), None), "");
        let locks = [a, b];
        let text = circles(&locks, None);
        assert!(text.contains("job (app, pid 1) waits for b behind job (app, pid 2)"), "{text}");
        assert!(text.contains("job (app, pid 2) waits for a behind job (app, pid 1)"), "{text}");
        for width in [80, 50, 20] {
            let narrow = circles(&locks, Some(width));
            assert!(narrow.lines().all(|line| line.chars().count() <= width), "{narrow}");
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&narrow), words(&text), "everything is there");
        }
    }
}
