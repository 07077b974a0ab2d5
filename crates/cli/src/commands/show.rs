//! `lockkeeper show`: one lock, its holders and its queue.

use crate::arguments::EngineOptions;
use crate::commands::ls;
use crate::exit::{Outcome, SUCCESS};
use crate::table::{Column, brief, layout, or_dash, standing_for, unique_prefix, width};
use crate::{complete, json, location, output};
use clap::Args;
use clap_complete::ArgValueCompleter;
use lockkeeper::views::{ClaimView, LockView, deadlocks};

const EXAMPLES: &str = "\
Examples:
  lockkeeper show orders/42
  lockkeeper show orders/42 --json | jq '.claims[0].token'";

/// Show one lock: its holders and its queue, in order
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Show {
    /// Name of the lock, with or without its namespace
    #[arg(add = ArgValueCompleter::new(complete::names))]
    name: String,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print all columns and whole claim ids, however wide
    #[arg(long, conflicts_with = "json")]
    wide: bool,
}

impl Show {
    /// Looks once and prints.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        let keeper = options.connect(None).await?;
        let lock = location::lock(&keeper, &self.name).await?;
        // A circle goes through other locks, of which one that nobody waits for is no part.
        let waits = lock.waiters().next().is_some();
        let all = if waits { location::locks(&keeper, "").await.unwrap_or_default() } else { Vec::new() };
        let mut circles = deadlocks(&all);
        circles.retain(|circle| json::concerns(circle, &lock.name));
        if self.json {
            output::print_json(&json::Lock::with_deadlocks(&keeper, &lock, &circles))?;
        } else if lock.claims.is_empty() {
            let full_name = location::full_name(&keeper, &lock.name);
            let place = location::describe(options, &keeper)?;
            output::print(&format!("{} is free: no claims on '{full_name}' at {place}\n", lock.name))?;
        } else {
            let columns = width(self.wide);
            output::print(&(queue(&lock, columns) + &ls::describe(circles, columns)))?;
        }
        keeper.close().await;
        Ok(SUCCESS)
    }
}

const COLUMNS: [Column; 11] = [
    Column::new("#"),
    Column::new("").cut_to(11),
    Column::new("WHO").cut_to(8),
    Column::new("HOST").cut_to(8).optional(4),
    Column::new("PID").optional(5),
    Column::new("AS").optional(2),
    Column::new("SINCE").optional(0),
    Column::new("FOR"),
    Column::new("TOKEN").optional(1),
    Column::new("TTL LEFT").optional(3),
    Column::new("CLAIM"),
];

/// One line per claim, in queue order, numbered, with the numbers of those it waits for.
fn queue(lock: &LockView, width: Option<usize>) -> String {
    let rows = lock.claims.iter().enumerate().map(|(index, claim)| {
        let ahead: Vec<_> = lock.waits_for(index).iter().rev().map(|ahead| (ahead + 1).to_string()).collect();
        let mut standing = claim.standing.to_string();
        if !ahead.is_empty() {
            standing += &format!(" for {}", ahead.join(", "));
        }
        let id = id_length(lock, width);
        [vec![(index + 1).to_string()], row(standing, claim, id)].concat()
    });
    layout(&COLUMNS, rows.collect(), width)
}

/// One line for each of these claims of the lock.
pub(crate) fn list(lock: &LockView, claims: &[ClaimView], width: Option<usize>) -> String {
    let id = id_length(lock, width);
    let rows = claims.iter().map(|claim| row(claim.standing.to_string(), claim, id));
    layout(&COLUMNS[1..], rows.collect(), width)
}

fn id_length(lock: &LockView, width: Option<usize>) -> usize {
    width.map_or(usize::MAX, |_| unique_prefix(lock.claims.iter().map(|claim| claim.id.as_str())))
}

fn row(standing: String, claim: &ClaimView, id: usize) -> Vec<String> {
    let holder = &claim.holder;
    vec![
        standing,
        holder.text.clone() + if claim.foreign { " (another client)" } else { "" },
        or_dash(Some(&holder.host).filter(|host| !host.is_empty()), String::clone),
        or_dash(Some(holder.pid).filter(|pid| *pid != 0), |pid| pid.to_string()),
        claim.demand.to_string(),
        or_dash(claim.standing_for().and_then(json::since), |time| time),
        standing_for(claim),
        or_dash(claim.token, |token| token.to_string()),
        or_dash(claim.ttl_left, brief),
        claim.id.chars().take(id).collect(),
    ]
}
