//! `lockkeeper evict`: removes claims by force.

use crate::arguments::EngineOptions;
use crate::commands::show;
use crate::exit::{Failure, NOTHING_DONE, Outcome, SUCCESS};
use crate::output::{self, warn};
use crate::table::{brief, printable, width};
use crate::{complete, location, waiting};
use clap::Args;
use clap_complete::ArgValueCompleter;
use futures_util::future::join_all;
use lockkeeper::Keeper;
use lockkeeper::views::{ClaimView, LockView};
use lockkeeper_core::engine::parse_duration;
use std::io::{IsTerminal, Write};
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  lockkeeper evict orders/42 --ask                 ask its holders to release, and wait for it
  lockkeeper evict orders/42 --ask --then-force    the same, and evict who still holds after that
  lockkeeper evict orders/42                       evict its holders, after a question
  lockkeeper evict orders/42 3f9a --yes            the claim whose id begins with 3f9a, without one

A holder that is asked learns of it at its next renewal: 'lockkeeper run' sends TERM to its command and
releases when that has ended (unless --on-ask ignore); a program sees guard.release_requested().

An evicted holder notices at its next renewal, and 'lockkeeper run' then ends its command. Until then
two may hold the lock: evict claims whose owner is dead, hangs or does no harm.";

/// Ask holders to release, or remove claims by force: those that hold, or the one named
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Evict {
    /// Name of the lock, with or without its namespace
    #[arg(add = ArgValueCompleter::new(complete::names))]
    name: String,

    /// Id of the claim, or its first digits, as 'show' prints it [default: the claims that hold]
    claim: Option<String>,

    /// Ask the owner to release, and wait for it; without --then-force nothing is removed
    #[arg(long)]
    ask: bool,

    /// With --ask: how long to wait
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "30s", requires = "ask")]
    wait: Duration,

    /// With --ask: evict by force what is still there after the wait
    #[arg(long, requires = "ask")]
    then_force: bool,

    /// Do not ask for confirmation before force
    #[arg(short, long)]
    yes: bool,
}

impl Evict {
    /// Shows the claims, asks, evicts.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        let has_force = !self.ask || self.then_force;
        if has_force && !self.yes && !std::io::stdin().is_terminal() {
            return Err(Failure::usage("evicting asks first, and there is no terminal to ask on: add --yes"));
        }
        let keeper = options.connect(None).await?;
        let lock = location::lock(&keeper, &self.name).await?;
        let mut victims = match self.choose(&lock) {
            Ok(victims) => victims,
            Err(Refused::Nothing(why)) => {
                let place = location::describe(options, &keeper)?;
                return Err(Failure::new(NOTHING_DONE, format!("{why} at {place}")));
            }
            Err(Refused::Several(why)) => return Err(Failure::usage(why)),
        };
        output::print(&show::list(&lock, &victims, width(false)))?;
        if self.ask {
            refuse_to_ask_strangers(&victims)?;
            victims = self.ask_all(&keeper, &lock.name, victims).await?;
            if victims.is_empty() || !self.then_force {
                let ttl = keeper.ttl();
                keeper.close().await;
                return if victims.is_empty() { Ok(SUCCESS) } else { Err(self.still_there(&victims, ttl)) };
            }
        }
        if keeper.abilities().evict_ends_others {
            warn(
                "an eviction in this style ends the owner's connection, and with it other locks of the same process",
            );
        }
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

    /// Asks the owners of all of them; those that are still there after the wait.
    async fn ask_all(
        &self,
        keeper: &Keeper,
        name: &str,
        victims: Vec<ClaimView>,
    ) -> Result<Vec<ClaimView>, Failure> {
        let asked = join_all(victims.iter().map(|victim| keeper.ask(name, &victim.id, self.wait))).await;
        let mut left = Vec::new();
        for (victim, is_gone) in victims.into_iter().zip(asked) {
            if !is_gone? {
                left.push(victim);
            }
        }
        Ok(left)
    }

    /// The owners' TTL is not known: it is this one's, as a rule, and more than what is left of it.
    fn still_there(&self, left: &[ClaimView], ttl: Duration) -> Failure {
        let who: Vec<String> = left.iter().map(|claim| printable(&claim.holder.to_string())).collect();
        let (who, wait) = (who.join(", "), brief(self.wait));
        let ttl = left.iter().filter_map(|claim| claim.ttl_left).fold(ttl, Duration::max);
        let unaware = match ttl / 3 {
            every if self.wait < every => format!(", and may not know yet: it renews every {}", brief(every)),
            _ => String::new(),
        };
        Failure::new(
            NOTHING_DONE,
            format!(
                "asked, and still there after {wait}: {who}{unaware}; wait longer (--wait), or add --then-force"
            ),
        )
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

/// Before anybody is asked: an owner that lets go in vain has lost its place.
fn refuse_to_ask_strangers(victims: &[ClaimView]) -> Result<(), Failure> {
    let Some(stranger) = victims.iter().find(|victim| victim.foreign) else { return Ok(()) };
    Err(Failure::usage(format!(
        "cannot ask {}: another client made the claim {}, and does not listen; nobody was asked. End it there, or evict it \
         without --ask",
        printable(&waiting::who(stranger)),
        printable(&stranger.id)
    )))
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
    use lockkeeper::Holder;
    use lockkeeper::views::{Demand, Standing};

    fn claim(id: &str) -> ClaimView {
        ClaimView::new(id, Standing::Waits, Demand::Exclusive, Holder::here("test"))
    }

    #[test]
    fn nobody_is_asked_if_one_of_them_does_not_listen() {
        let stranger = claim("bb").foreign(true);
        assert!(refuse_to_ask_strangers(&[claim("aa"), claim("cc")]).is_ok());
        let refused = refuse_to_ask_strangers(&[claim("aa"), stranger]).unwrap_err().to_string();
        assert!(refused.contains("another client made the claim bb") && refused.contains("nobody was asked"));
    }

    #[test]
    fn the_start_of_an_id_is_enough_if_it_is_unique() {
        let lock = LockView::from_queue("x", vec![claim("aa11"), claim("aa22"), claim("bb33")]);
        let choose = |claim: Option<&str>| {
            let (name, wait) = ("x".into(), Duration::ZERO);
            let evict =
                Evict { name, claim: claim.map(Into::into), ask: false, wait, then_force: false, yes: true };
            evict.choose(&lock)
        };
        assert_eq!(choose(None).unwrap()[0].id, "aa11");
        assert_eq!(choose(Some("aa2")).unwrap()[0].id, "aa22");
        assert!(choose(Some("aa")).is_err());
        assert!(choose(Some("cc")).is_err());
    }
}
