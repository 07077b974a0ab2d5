//! `lockkeeper ls`: the locks in use.

use crate::arguments::EngineOptions;
use crate::exit::{Outcome, SUCCESS};
use crate::output;
use crate::table::{brief, layout, or_dash, printable};
use crate::waiting::held_by;
use clap::Args;
use lockkeeper::{LockView, deadlocks};

const EXAMPLES: &str = "\
Examples:
  lockkeeper ls                  every lock in use
  lockkeeper ls orders/          those whose name begins with orders/
  lockkeeper ls --json | jq -r '.[].name'";

/// List the locks in use, with who holds them and how many wait, and who waits for each other
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
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        let keeper = options.connect(None).await?;
        let locks = keeper.inspect(&self.prefix).await?;
        if self.json {
            output::print_json(&locks)?
        } else {
            output::print(&(list(&locks) + &circles(&locks)))?
        };
        keeper.close().await;
        Ok(SUCCESS)
    }
}

/// Who waits for each other, if anybody does; of fair styles only, for the others have no waiters to show.
pub(crate) fn circles(locks: &[LockView]) -> String {
    let mut text = String::new();
    for circle in deadlocks(locks) {
        text += "\ndeadlock? These wait for each other (end one, or evict a claim):\n";
        for wait in circle {
            text += &format!("  {}\n", printable(&wait.to_string()));
        }
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper::{ClaimView, Demand, Holder, Standing};

    #[test]
    fn who_waits_for_each_other_is_told_below_the_table() {
        let claim = |pid: u32| ClaimView {
            id: pid.to_string(),
            standing: Standing::Waits,
            demand: Demand::Exclusive,
            holder: Holder { text: "job".into(), host: "app".into(), pid },
            token: None,
            age: None,
            ttl_left: None,
            foreign: false,
        };
        let a = LockView::from_queue("a", vec![claim(1), claim(2)]);
        let b = LockView::from_queue("b", vec![claim(2), claim(1)]);
        assert_eq!(circles(std::slice::from_ref(&a)), "");
        let text = circles(&[a, b]);
        assert!(text.contains("job (app, pid 1) waits for b behind job (app, pid 2)"), "{text}");
        assert!(text.contains("job (app, pid 2) waits for a behind job (app, pid 1)"), "{text}");
    }
}
