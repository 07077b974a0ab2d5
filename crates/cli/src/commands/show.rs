//! `lockkeeper show`: one lock, its holders and its queue.

use crate::arguments::EngineOptions;
use crate::exit::{Failure, Outcome, SUCCESS};
use crate::output;
use crate::table::{brief, layout, or_dash};
use clap::Args;
use lockkeeper::{ClaimView, Keeper, LockName, LockView};
use std::time::SystemTime;

const EXAMPLES: &str = "\
Examples:
  lockkeeper show orders/42
  lockkeeper show orders/42 --json | jq '.claims[0].token'";

/// Show one lock: its holders and its queue, in order
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Show {
    /// The lock
    name: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Show {
    /// Looks once and prints.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        let keeper = options.connect(None).await?;
        let lock = look_at(&keeper, &self.name).await?;
        if self.json {
            output::print_json(&lock)?;
        } else if lock.claims.is_empty() {
            output::print(&format!("{} is free\n", lock.name))?;
        } else {
            output::print(&queue(&lock))?;
        }
        keeper.close().await;
        Ok(SUCCESS)
    }
}

/// The lock as it is now; without claims if it is free.
pub(crate) async fn look_at(keeper: &Keeper, name: &str) -> Result<LockView, Failure> {
    LockName::new(name)?;
    let locks = keeper.inspect(name).await?;
    let lock = locks.into_iter().find(|lock| lock.name == name);
    Ok(lock.unwrap_or_else(|| LockView { name: name.into(), claims: Vec::new() }))
}

const HEADINGS: [&str; 10] = ["", "WHO", "HOST", "PID", "AS", "SINCE", "FOR", "TOKEN", "TTL LEFT", "CLAIM"];

/// One line per claim, in queue order, numbered, with the numbers of those it waits for.
fn queue(lock: &LockView) -> String {
    let rows = lock.claims.iter().enumerate().map(|(index, claim)| {
        let ahead: Vec<_> = lock.waits_for(index).iter().rev().map(|ahead| (ahead + 1).to_string()).collect();
        let mut standing = claim.standing.to_string();
        if !ahead.is_empty() {
            standing += &format!(" for {}", ahead.join(", "));
        }
        [vec![(index + 1).to_string()], row(standing, claim)].concat()
    });
    layout(&[&["#"], &HEADINGS[..]].concat(), rows.collect())
}

/// One line per claim.
pub(crate) fn list(claims: &[ClaimView]) -> String {
    layout(&HEADINGS, claims.iter().map(|claim| row(claim.standing.to_string(), claim)).collect())
}

fn row(standing: String, claim: &ClaimView) -> Vec<String> {
    let joined = claim.age.and_then(|age| SystemTime::now().checked_sub(age));
    vec![
        standing,
        claim.holder.text.clone() + if claim.foreign { " (another client)" } else { "" },
        claim.holder.host.clone(),
        claim.holder.pid.to_string(),
        claim.demand.to_string(),
        or_dash(joined, |time| humantime::format_rfc3339_seconds(time).to_string()),
        or_dash(claim.age, brief),
        or_dash(claim.token, |token| token.to_string()),
        or_dash(claim.ttl_left, brief),
        claim.id.clone(),
    ]
}
