//! `lockkeeper run`: a command while it holds one or several locks.

use crate::arguments::EngineOptions;
use crate::child::Child;
use crate::exit::{self, Failure, Outcome};
use crate::output::warn;
use crate::signals::Signals;
use crate::supervise::{OnLost, Watch};
use crate::{complete, lookup, waiting};
use clap::Args;
use clap_complete::ArgValueCompleter;
use lockkeeper::{Demand, Error, Guard, Keeper, LostReason, MultiLock, State, Wanted};
use lockkeeper_core::engine::parse_duration;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  lockkeeper run backup -- pg_dump shop -f shop.sql      wait for 'backup', then run
  lockkeeper run --no-wait nightly -- ./nightly.sh       skip it (75) if another one runs
  lockkeeper run --wait 30s migrate -- ./migrate up      wait up to 30 seconds (75)
  lockkeeper run --permits 1/4 gpu -- ./train            at most four at a time
  lockkeeper run --read stock -- ./report                share it with other readers
  lockkeeper run from to -- ./transfer                   both or none, never a deadlock

The command has the lock's name in LOCKKEEPER_LOCK and the fencing token, which grows with every
grant, in LOCKKEEPER_TOKEN; of several locks, separated by commas.";

const USAGE: &str = "lockkeeper run [OPTIONS] <NAME>... -- <COMMAND>...";

/// How long the engine gets for the leave of what was dropped, before the program ends without its reply.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// How long a release may take, at least and at most. In between it is worth as long as the hold would last.
const RELEASE_LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// Run a command while it holds a lock
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct Run {
    /// Name of the lock, such as orders/42; with several names, all of them or none
    #[arg(required = true, num_args = 1.., value_name = "NAME", add = ArgValueCompleter::new(complete::names_or_command))]
    names: Vec<String>,

    /// Share the lock with other readers
    #[arg(short, long, conflicts_with = "permits")]
    read: bool,

    /// Take K of N permits; every user of the name must give the same N
    #[arg(short, long, value_name = "K/N", value_parser = parse_permits)]
    permits: Option<Demand>,

    /// Wait up to DURATION for the lock [default: no limit]
    #[arg(short, long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "no_wait")]
    wait: Option<Duration>,

    /// Do not wait for the lock
    #[arg(short, long)]
    no_wait: bool,

    /// Exit with CODE if the lock is not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = exit::NOT_ACQUIRED)]
    conflict_exit_code: u8,

    /// Hold the lock for at most DURATION, and end the command before (124)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    lease: Option<Duration>,

    /// What to do with the command when the lock is lost or the lease ends
    #[arg(long, value_enum, default_value_t = OnLost::Term, value_name = "ACTION")]
    on_lost: OnLost,

    /// Name shown to operators as the holder [default: the command's name]
    #[arg(long, value_name = "TEXT")]
    holder: Option<String>,

    /// The command and its arguments
    // Not required for clap: without it the error suggests where '--' belongs.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn parse_permits(text: &str) -> Result<Demand, String> {
    match text.parse() {
        Ok(demand @ Demand::Permits { .. }) => Ok(demand),
        _ => Err("expected K/N, such as 1/4: K of N permits, K at least 1 and at most N".into()),
    }
}

impl Run {
    /// Waits for the locks, runs the command, releases the locks.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        self.check()?;
        // Before anything is sent, so that a signal that ends this process also ends the claim.
        let mut signals = Signals::ending()?;
        let keeper = tokio::select! {
            keeper = options.connect(Some(self.holder())) => keeper?,
            signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
        };
        let outcome = self.with_keeper(&keeper, &mut signals).await;
        signals.unless_ended(CLOSE_LIMIT, keeper.close()).await;
        outcome
    }

    /// Refuses what can be refused before anything is claimed.
    fn check(&self) -> Result<(), Failure> {
        let Some(program) = self.command.first() else { return Err(self.no_command()) };
        if let Some(name) = self.names.iter().find(|name| name.contains(',')).filter(|_| self.names.len() > 1)
        {
            return Err(Failure::usage(format!(
                "LOCKKEEPER_LOCK has several names separated by commas, so '{name}' cannot be one of them"
            )));
        }
        lookup::check(program)
    }

    fn no_command(&self) -> Failure {
        let suggested = match self.names.get(1) {
            Some(second) => {
                let mut words: Vec<String> =
                    std::env::args().skip(1).skip_while(|word| word != "run").collect();
                let at =
                    words.iter().skip(1).position(|word| word == second).map_or(words.len(), |at| at + 1);
                words.insert(at, "--".into());
                words.join(" ")
            }
            None => format!("run {} -- COMMAND", self.names.join(" ")),
        };
        Failure::usage(format!(
            "no command is given: put '--' before it, such as\n  lockkeeper {suggested}\n\nUsage: {USAGE}"
        ))
    }

    /// The command's name without its arguments: they may contain secrets.
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
        let Some(guard) = guard else {
            let holders = signals.unless_ended(CLOSE_LIMIT, self.holders(keeper)).await;
            return Err(self.not_acquired(&holders.unwrap_or_default()));
        };
        let ended = self.command_under(&guard, keeper.ttl(), signals).await;
        self.release(guard, ended, signals).await
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
            Error::Lost { .. } => {
                Failure::new(self.conflict_exit_code, format!("{error}, while waiting for it"))
            }
            other => other.into(),
        })
    }

    fn not_acquired(&self, holders: &str) -> Failure {
        let within = match self.wait {
            Some(limit) if !self.no_wait => format!(" within {}", crate::table::brief(limit)),
            _ => String::new(),
        };
        let names = self.names.join(", ");
        Failure::new(self.conflict_exit_code, format!("did not acquire the lock {names}{within}{holders}"))
    }

    /// Who holds the locks now, as the end of a sentence.
    async fn holders(&self, keeper: &Keeper) -> String {
        let mut text = String::new();
        for name in &self.names {
            if let Some(lock) = waiting::find(keeper, name).await
                && lock.holders().next().is_some()
            {
                text += &format!("; {name} is held by {}", waiting::held_by(&lock));
            }
        }
        text
    }

    async fn command_under(&self, guard: &Guard, ttl: Duration, signals: &mut Signals) -> Outcome {
        signals.add_running()?;
        let mut child = Child::start(&self.command, self.variables(guard)?)?;
        let watch = Watch { guard, on_lost: self.on_lost, ttl, lease: self.lease };
        watch.until_end(&mut child, signals).await
    }

    /// The command's variables: names as they were given, and the tokens in the same order.
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

    /// Releases the locks, in bounded time. A loss that shows only now has ended no command, so the status stays
    /// the command's own.
    async fn release(&self, guard: Guard, ended: Outcome, signals: &mut Signals) -> Outcome {
        // The renewal task has sent the leave of a lost hold; closing the keeper waits for it a moment.
        let lost = guard.state() == State::Lost;
        let (least, most) = RELEASE_LIMITS;
        let limit = guard.valid_for().clamp(least, most);
        let released = if lost {
            guard.protect(async {}).await
        } else {
            let no_reply = || Err(Error::temporary("the engine", "release the lock", "no reply in time"));
            signals.unless_ended(limit, guard.release()).await.unwrap_or_else(no_reply)
        };
        match released {
            Ok(()) | Err(Error::Lost { reason: LostReason::LeaseEnded, .. }) => {}
            // The loss was reported when the command was ended for it, or left to run.
            Err(Error::Lost { .. }) if ended.is_err() || self.on_lost == OnLost::Ignore => {}
            Err(error @ Error::Lost { .. }) => warn(&format!(
                "{error}, before the command ended by itself: another holder may have run beside it"
            )),
            Err(error) => warn(&format!("{error}; the lock is free when its TTL is over")),
        }
        ended
    }
}
