//! `lockkeeper ls`: the locks in use.

use crate::arguments::Place;
use crate::exit::{Outcome, SUCCESS};
use crate::output;
use crate::table::{brief, layout, or_dash};
use crate::waiting::held_by;
use clap::Args;
use lockkeeper::LockView;

const EXAMPLES: &str = "\
Examples:
  lockkeeper ls                  every lock in use
  lockkeeper ls orders/          those whose name begins with orders/
  lockkeeper ls --json | jq -r '.[].name'";

/// List the locks in use, with who holds them and how many wait
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ls {
    /// Only locks whose name begins like this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// Print JSON, with every claim
    #[arg(long)]
    json: bool,
}

impl Ls {
    /// Looks once and prints.
    pub(crate) async fn run(self, place: &Place) -> Outcome {
        let keeper = place.connect(None).await?;
        let locks = keeper.inspect(&self.prefix).await?;
        if self.json {
            output::print_json(&locks)?
        } else {
            output::print(&list(&locks))?
        };
        keeper.close().await;
        Ok(SUCCESS)
    }
}

/// One line per lock.
pub(crate) fn list(locks: &[LockView]) -> String {
    let rows = locks.iter().map(|lock| {
        let since = lock.holders().filter_map(|claim| claim.age).max();
        let kind = lock.claims.first().map(|claim| claim.demand);
        vec![
            lock.name.clone(),
            or_dash(kind, |demand| demand.to_string()),
            lock.holders().count().to_string(),
            lock.waiters().count().to_string(),
            or_dash(since, brief),
            held_by(lock),
        ]
    });
    layout(&["NAME", "AS", "HOLD", "WAIT", "FOR", "HELD BY"], rows.collect())
}
