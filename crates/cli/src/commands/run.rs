//! `lockkeeper run`: a command while it holds one or several locks.

use crate::arguments::Place;
use crate::child::Child;
use crate::exit::{self, Failure, Outcome};
use crate::output::warn;
use crate::signals::Signals;
use crate::supervise::{OnLost, Watch};
use crate::waiting;
use clap::Args;
use lockkeeper::{Demand, Error, Guard, Keeper, MultiLock, Wanted};
use lockkeeper_core::engine::parse_duration;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  lockkeeper run backup -- pg_dump shop -f shop.sql      wait for 'backup', then run
  lockkeeper run --no-wait nightly -- ./nightly.sh       skip it (75) if another one runs
  lockkeeper run --wait 30s migrate -- ./migrate up      wait at most 30 seconds (75)
  lockkeeper run --permits 1/4 gpu -- ./train            at most four at a time
  lockkeeper run --read stock -- ./report                share it with other readers
  lockkeeper run from to -- ./transfer                   both or none, never a deadlock

The command finds the lock's name in LOCKKEEPER_LOCK and the fencing token, which grows with every
grant, in LOCKKEEPER_TOKEN; of several locks, separated by commas.";

/// Run a command while it holds a lock
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct Run {
    /// The lock, path-like such as orders/42; several mean all of them or none
    #[arg(required = true, num_args = 1.., value_name = "NAME")]
    names: Vec<String>,

    /// Share the lock with others that read
    #[arg(short, long, conflicts_with = "permits")]
    read: bool,

    /// Take K of N permits; everybody who uses the name must give the same N
    #[arg(short, long, value_name = "K/N", value_parser = parse_permits)]
    permits: Option<Demand>,

    /// Wait at most so long for the lock [default: as long as it takes]
    #[arg(short, long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "no_wait")]
    wait: Option<Duration>,

    /// Do not wait at all
    #[arg(short, long)]
    no_wait: bool,

    /// Give the lock back after this time at the latest, and end the command before
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    lease: Option<Duration>,

    /// What to do with the command when the lock is lost
    #[arg(long, value_enum, default_value_t = OnLost::Term, value_name = "ACTION")]
    on_lost: OnLost,

    /// Who you are, for people who look [default: the command's name]
    #[arg(long, value_name = "TEXT")]
    holder: Option<String>,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn parse_permits(text: &str) -> Result<Demand, String> {
    match text.parse() {
        Ok(demand @ Demand::Permits { .. }) => Ok(demand),
        _ => Err("expected K/N, such as 1/4: K of N permits, K at least 1 and at most N".into()),
    }
}

impl Run {
    /// Waits for the locks, runs the command, gives the locks back.
    pub(crate) async fn run(self, place: &Place) -> Outcome {
        self.check()?;
        // Before anything is sent, so that whatever ends us also ends the claim.
        let mut signals = Signals::ending()?;
        let keeper = tokio::select! {
            keeper = place.connect(Some(self.holder())) => keeper?,
            signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
        };
        let outcome = self.with_keeper(&keeper, &mut signals).await;
        // Whatever was dropped on the way leaves before we do; an impatient second signal cuts that short.
        tokio::select! {
            () = keeper.close() => {}
            _ = signals.next() => {}
        }
        outcome
    }

    fn check(&self) -> Result<(), Failure> {
        match self.names.iter().find(|name| name.contains(',')) {
            Some(name) if self.names.len() > 1 => Err(Failure::usage(format!(
                "several locks are told to the command separated by commas, so '{name}' cannot be one of them"
            ))),
            _ => Ok(()),
        }
    }

    /// The command's name without its arguments: those may hold secrets, and many people look.
    fn holder(&self) -> String {
        self.holder.clone().unwrap_or_else(|| {
            let program = self.command.first().map(Path::new).and_then(Path::file_name);
            program.map(|name| crate::table::printable(&name.to_string_lossy())).unwrap_or_default()
        })
    }

    async fn with_keeper(&self, keeper: &Keeper, signals: &mut Signals) -> Outcome {
        let guard = tokio::select! {
            biased;
            guard = self.acquire(keeper) => guard?,
            signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
            never = waiting::show(keeper, &self.names) => match never {},
            never = waiting::warn_of_itself(&self.names) => match never {},
        };
        let Some(guard) = guard else { return Err(self.not_granted(keeper).await) };
        let ended = self.command_under(&guard, keeper.ttl(), signals).await;
        self.give_back(guard, ended).await
    }

    async fn acquire(&self, keeper: &Keeper) -> Result<Option<Guard>, Failure> {
        let demand = match self.permits {
            Some(permits) => permits,
            None if self.read => Demand::Shared,
            None => Demand::Exclusive,
        };
        let mut lock = MultiLock::new(self.names.iter().map(|name| Wanted::new(keeper, name, demand)));
        if let Some(lease) = self.lease {
            lock = lock.lease(lease);
        }
        let guard = match self.wait {
            _ if self.no_wait => lock.try_lock().await,
            Some(limit) => lock.lock_within(limit).await,
            None => lock.lock().await.map(Some),
        };
        guard.map_err(|error| match error {
            // Nothing has run yet, so nothing was lost but a place in the queue.
            Error::Lost { .. } => Failure::new(exit::NOT_GRANTED, format!("{error}, while waiting for it")),
            other => other.into(),
        })
    }

    async fn not_granted(&self, keeper: &Keeper) -> Failure {
        let waited = match self.wait {
            Some(limit) if !self.no_wait => format!(" within {}", crate::table::brief(limit)),
            _ => String::new(),
        };
        let mut message = format!("did not get the lock {}{waited}", self.names.join(", "));
        for name in &self.names {
            if let Ok(locks) = keeper.inspect_at_most(name, 100).await
                && let Some(lock) = locks.iter().find(|lock| lock.name == *name)
                && lock.holders().next().is_some()
            {
                message += &format!("; {name} is held by {}", waiting::held_by(lock));
            }
        }
        Failure::new(exit::NOT_GRANTED, message)
    }

    async fn command_under(&self, guard: &Guard, ttl: Duration, signals: &mut Signals) -> Outcome {
        signals.add_running()?;
        let mut child = Child::start(&self.command, self.variables(guard)?)?;
        let watch = Watch { guard, on_lost: self.on_lost, ttl, lease: self.lease };
        watch.until_end(&mut child, signals).await
    }

    /// What the command is told: names as they were given, and the tokens in the same order.
    fn variables(&self, guard: &Guard) -> Result<[(&'static str, String); 2], Failure> {
        let tokens = guard.tokens()?;
        // A guard of several locks has them sorted by name.
        let mut sorted: Vec<&String> = self.names.iter().collect();
        sorted.sort();
        let token_of = |name: &String| {
            let at = sorted.binary_search(&name).unwrap_or_default();
            tokens[at].1.to_string()
        };
        let tokens: Vec<String> = self.names.iter().map(token_of).collect();
        Ok([("LOCKKEEPER_LOCK", self.names.join(",")), ("LOCKKEEPER_TOKEN", tokens.join(","))])
    }

    /// Gives the locks back. Only then is it known whether they were ours to the end.
    async fn give_back(&self, guard: Guard, ended: Outcome) -> Outcome {
        match guard.release().await {
            Err(error) if error.is_lost() && ended.is_ok() && self.on_lost != OnLost::Ignore => {
                Err(Failure::new(exit::LOST, format!("{error}; the command had ended by itself")))
            }
            Err(error) if !error.is_lost() => {
                warn(&format!("{error}; the lock frees itself when its TTL is over"));
                ended
            }
            _ => ended,
        }
    }
}
