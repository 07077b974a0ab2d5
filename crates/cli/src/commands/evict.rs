//! `lockkeeper evict`: removes claims by force.

use crate::arguments::EngineOptions;
use crate::commands::show;
use crate::complete;
use crate::exit::{Failure, NOTHING_DONE, Outcome, SUCCESS};
use crate::location;
use crate::output::{self, warn};
use crate::table::width;
use clap::Args;
use clap_complete::ArgValueCompleter;
use lockkeeper::{ClaimView, LockView};
use std::io::{IsTerminal, Write};

const EXAMPLES: &str = "\
Examples:
  lockkeeper evict orders/42               its holders, after a question
  lockkeeper evict orders/42 3f9a --yes    the claim whose id begins with 3f9a, without one

An evicted holder notices at its next renewal, and 'lockkeeper run' then ends its command. Until then
two may hold the lock: evict claims whose owner is dead, hangs or does no harm.";

/// Remove claims by force: those that hold, or the one named
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Evict {
    /// Name of the lock, with or without its namespace
    #[arg(add = ArgValueCompleter::new(complete::names))]
    name: String,

    /// Id of the claim, or its first digits, as 'show' prints it [default: the claims that hold]
    claim: Option<String>,

    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

impl Evict {
    /// Shows the claims, asks, evicts.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        if !self.yes && !std::io::stdin().is_terminal() {
            return Err(Failure::usage("evicting asks first, and there is no terminal to ask on: add --yes"));
        }
        let keeper = options.connect(None).await?;
        let lock = location::lock(&keeper, &self.name).await?;
        let victims = match self.choose(&lock) {
            Ok(victims) => victims,
            Err(Refused::Nothing(why)) => {
                let place = location::describe(options, &keeper)?;
                return Err(Failure::new(NOTHING_DONE, format!("{why} at {place}")));
            }
            Err(Refused::Several(why)) => return Err(Failure::usage(why)),
        };
        output::print(&show::list(&lock, &victims, width(false)))?;
        if !self.yes && !agreed(victims.len())? {
            keeper.close().await;
            return Ok(NOTHING_DONE);
        }
        let mut status = SUCCESS;
        for victim in &victims {
            if !keeper.evict(&lock.name, &victim.id).await? {
                warn(&format!("the claim {} was gone already", victim.id));
                status = NOTHING_DONE;
            }
        }
        keeper.close().await;
        Ok(status)
    }

    fn choose(&self, lock: &LockView) -> Result<Vec<ClaimView>, Refused> {
        let name = &lock.name;
        let Some(wanted) = &self.claim else {
            let holders: Vec<ClaimView> = lock.holders().cloned().collect();
            let nobody = || Refused::Nothing(format!("nobody holds '{name}'"));
            return if holders.is_empty() { Err(nobody()) } else { Ok(holders) };
        };
        let found: Vec<ClaimView> =
            lock.claims.iter().filter(|claim| claim.id.starts_with(wanted.as_str())).cloned().collect();
        match found.len() {
            1 => Ok(found),
            0 => Err(Refused::Nothing(format!("'{name}' has no claim whose id begins with {wanted}"))),
            several => {
                Err(Refused::Several(format!("{several} claims begin with {wanted}: give more of the id")))
            }
        }
    }
}

/// Why no claim was chosen.
#[derive(Debug)]
enum Refused {
    Nothing(String),
    Several(String),
}

fn agreed(claims: usize) -> Result<bool, Failure> {
    let what = if claims == 1 { "this claim" } else { "these claims" };
    let no_answer = |error: std::io::Error| Failure::usage(format!("could not ask: {error}"));
    let mut stderr = std::io::stderr();
    write!(stderr, "Evict {what}? Two may hold the lock until the owner notices. [y/N] ")
        .map_err(no_answer)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(no_answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper::{Demand, Holder, Standing};

    fn claim(id: &str) -> ClaimView {
        ClaimView {
            id: id.into(),
            standing: Standing::Waits,
            demand: Demand::Exclusive,
            holder: Holder::here("test"),
            token: None,
            age: None,
            ttl_left: None,
            foreign: false,
        }
    }

    #[test]
    fn the_start_of_an_id_is_enough_if_it_is_unique() {
        let lock = LockView::from_queue("x", vec![claim("aa11"), claim("aa22"), claim("bb33")]);
        let choose = |claim: Option<&str>| {
            Evict { name: "x".into(), claim: claim.map(Into::into), yes: true }.choose(&lock)
        };
        assert_eq!(choose(None).unwrap()[0].id, "aa11");
        assert_eq!(choose(Some("aa2")).unwrap()[0].id, "aa22");
        assert!(choose(Some("aa")).is_err());
        assert!(choose(Some("cc")).is_err());
    }
}
