//! `lockkeeper run`: a command while it holds one or several locks.

use crate::arguments::EngineOptions;
use crate::child::Child;
use crate::exit::{self, Failure, Outcome};
use crate::output::warn;
use crate::signals::Signals;
use crate::supervise::{OnAsk, OnLost, Watch};
use crate::table::brief;
use crate::{complete, lookup, waiting};
use clap::Args;
use clap_complete::ArgValueCompleter;
use lockkeeper::views::Demand;
use lockkeeper::{Error, Guard, Handle, Keeper, LostReason, MultiLock, State, Wanted};
use lockkeeper_core::engine::{RUN_VARIABLE, parse_duration, runs_around};
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  lockkeeper run backup -- pg_dump shop -f shop.sql      wait for 'backup', then run
  lockkeeper run --once-per 1h nightly -- ./nightly.sh   at most once in an hour, on all machines (75)
  lockkeeper run --no-wait sync -- ./sync.sh             skip it (75) while another one runs
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
#[derive(Debug, Default, Args)]
#[command(override_usage = USAGE, after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct Run {
    /// Name of the lock, such as orders/42; with several names, all of them or none
    #[arg(required_unless_present = "with", num_args = 1.., value_name = "NAME", add = ArgValueCompleter::new(complete::names_or_command))]
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

    /// What to do with the command when somebody asks for the lock (evict --ask)
    #[arg(long, value_enum, default_value_t = OnAsk::Term, value_name = "ACTION")]
    on_ask: OnAsk,

    /// Run at most once in DURATION on all machines that share the engine: do not wait, and keep the lock until DURATION is over
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with_all = ["wait", "read", "permits"])]
    once_per: Option<Duration>,

    /// With --once-per: free the lock at once if the command fails, so that another call may try
    #[arg(long, requires = "once_per")]
    retry_failed: bool,

    /// Run under the hold of a handle that 'lockkeeper acquire' has printed, and leave it held for the rest of its time
    #[arg(
        long,
        value_name = "HANDLE",
        conflicts_with_all = ["names", "read", "permits", "wait", "no_wait", "lease", "once_per", "conflict_exit_code"]
    )]
    with: Option<Handle>,

    /// With --with: release the lock after the command
    #[arg(long, requires = "with")]
    release: bool,

    /// Name shown to operators as the holder [default: the command's name]
    #[arg(long, value_name = "TEXT")]
    holder: Option<String>,

    /// The command and its arguments
    // Not required for clap: without it the error suggests where '--' belongs.
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    /// How much of the wait went by before the engine replied
    #[arg(skip)]
    connected_after: Duration,

    /// Claim the lock again after a loss
    #[arg(skip)]
    again: bool,
}

pub(crate) fn parse_permits(text: &str) -> Result<Demand, String> {
    match text.parse() {
        Ok(demand @ Demand::Permits { .. }) => Ok(demand),
        _ => Err("expected K/N, such as 1/4: K of N permits, K at least 1 and at most N".into()),
    }
}

/// The word of a command line; a URL that may have a password stands for itself.
fn without_secret(word: String) -> String {
    if !(word.contains("://") && word.contains('@')) {
        return word;
    }
    match word.split_once('=').filter(|(option, _)| option.starts_with("--")) {
        Some((option, _)) => format!("{option}=URL"),
        None => "URL".into(),
    }
}

impl Run {
    /// The command of a candidate: it runs while it leads.
    pub(crate) fn leading(
        name: String,
        wait: (Option<Duration>, bool),
        (on_lost, on_ask): (OnLost, OnAsk),
        again: bool,
        holder: Option<String>,
        command: Vec<OsString>,
    ) -> Self {
        Self {
            names: vec![name],
            wait: wait.0,
            no_wait: wait.1,
            conflict_exit_code: exit::NOT_ACQUIRED,
            on_lost,
            on_ask,
            holder,
            command,
            again,
            ..Self::default()
        }
    }

    /// Waits for the locks, runs the command, releases the locks.
    pub(crate) async fn run(mut self, options: &EngineOptions) -> Outcome {
        self.names.extend(self.with.iter().map(|handle| handle.name().to_owned()));
        self.check()?;
        let (begun, limit) = (Instant::now(), if self.no_wait { Some(Duration::ZERO) } else { self.wait });
        // Before anything is sent, so that a signal that ends this process also ends the claim.
        let mut signals = Signals::ending()?;
        let keeper = tokio::select! {
            keeper = options.connect_within(Some(self.holder()), limit) => keeper?,
            signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
        };
        self.connected_after = begun.elapsed();
        let outcome = loop {
            match self.with_keeper(&keeper, &mut signals).await {
                Err(failure) if self.again && failure.is_loss() && !signals.asked_to_end().await => {
                    warn(&format!("{failure}; campaigning again"));
                    self.connected_after = Duration::ZERO;
                }
                outcome => break outcome,
            }
        };
        // The drop of the last handle would wait for the departures once more.
        std::mem::forget(keeper.clone());
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
                let mut words: Vec<String> = std::env::args().skip(1).map(without_secret).collect();
                let run = words.iter().position(|word| word == "run").unwrap_or_default();
                let second = words.iter().skip(run + 1).position(|word| word == second);
                words.insert(second.map_or(words.len(), |at| run + 1 + at), "--".into());
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
            never = waiting::warn_of_itself(keeper, &self.names) => match never {},
        };
        let Some(guard) = guard else {
            if let Some(period) = self.once_per {
                let next = signals.unless_ended(CLOSE_LIMIT, self.next_turn(keeper, period)).await.flatten();
                return Err(self.turn_is_taken(period, next));
            }
            let holders = signals.unless_ended(CLOSE_LIMIT, self.holders(keeper)).await;
            return Err(self.not_acquired(&holders.unwrap_or_default()));
        };
        let ended = self.command_under(&guard, keeper.ttl(), signals).await;
        self.release(keeper, guard, ended, signals).await
    }

    async fn acquire(&self, keeper: &Keeper) -> Result<Option<Guard>, Failure> {
        if let Some(handle) = &self.with {
            return Ok(Some(keeper.attach(handle).await?));
        }
        let demand = match self.permits {
            Some(permits) => permits,
            None if self.read => Demand::Shared,
            None => Demand::Exclusive,
        };
        let mut lock = MultiLock::new(self.names.iter().map(|name| Wanted::new(keeper, name, demand)));
        if let Some(lease) = self.lease {
            lock = lock.lease(lease);
        }
        if let Some(period) = self.once_per {
            lock = lock.hold_at_least(period);
        }
        let guard = match self.wait {
            _ if self.no_wait || self.once_per.is_some() => lock.try_lock().await,
            Some(limit) => lock.lock_within(waiting::rest_of(limit, self.connected_after)).await,
            None => lock.lock().await.map(Some),
        };
        guard.map_err(Failure::before_hold)
    }

    fn not_acquired(&self, holders: &str) -> Failure {
        let within = match self.wait {
            Some(limit) if !self.no_wait => format!(" within {}", crate::table::brief(limit)),
            _ => String::new(),
        };
        let names = self.names.join(", ");
        Failure::new(self.conflict_exit_code, format!("did not acquire the lock {names}{within}{holders}"))
    }

    fn turn_is_taken(&self, period: Duration, next: Option<(Duration, bool)>) -> Failure {
        let (names, period) = (self.names.join(", "), brief(period));
        let next = next.map(|(next, is_least)| {
            let least = if is_least { " at the earliest" } else { "" };
            format!("; the next turn comes in {}{least}", brief(next))
        });
        let next = next.unwrap_or_default();
        let message = format!("{names} already ran, or still runs, in this period of {period}{next}");
        Failure::new(self.conflict_exit_code, message)
    }

    /// How long the present turn lasts, and whether that is only the least: a command that outlasts the period is renewed.
    async fn next_turn(&self, keeper: &Keeper, period: Duration) -> Option<(Duration, bool)> {
        let mut next = None;
        for name in &self.names {
            let Some(lock) = waiting::find(keeper, name).await else { continue };
            let turns = lock.holders().filter_map(|claim| {
                let is_over = claim.held_for.or(claim.age).is_some_and(|held| held >= period);
                Some((claim.ttl_left?, is_over))
            });
            next = next.max(turns.max());
        }
        next
    }

    /// Who holds the locks now, as the end of a sentence.
    async fn holders(&self, keeper: &Keeper) -> String {
        let mut text = String::new();
        for name in &self.names {
            if let Some(lock) = waiting::find(keeper, name).await
                && lock.holders().next().is_some()
            {
                text += &format!("; {name} is held by {}", waiting::held_by(&lock));
                if waiting::is_around_this(&lock) {
                    text += ", around this command, which would wait for itself";
                }
            }
        }
        text
    }

    async fn command_under(&self, guard: &Guard, ttl: Duration, signals: &mut Signals) -> Outcome {
        signals.add_running()?;
        let mut child = Child::start(&self.command, self.variables(guard)?)?;
        let watch = Watch { guard, on_lost: self.on_lost, on_ask: self.on_ask, ttl, lease: self.lease };
        watch.until_end(&mut child, signals).await
    }

    /// The command's variables: names as they were given, and the tokens in the same order.
    fn variables(&self, guard: &Guard) -> Result<[(&'static str, String); 3], Failure> {
        let tokens = guard.tokens()?;
        // A guard of several locks has them sorted by name.
        let mut sorted: Vec<&String> = self.names.iter().collect();
        sorted.sort();
        let token_of = |name: &String| {
            let at = sorted.binary_search(&name).unwrap_or_default();
            tokens[at].1.to_string()
        };
        let tokens: Vec<String> = self.names.iter().map(token_of).collect();
        // What the command claims belongs to the outermost run, so that deadlocks of nested ones are found.
        let runs: Vec<String> =
            runs_around().iter().chain([&std::process::id()]).map(u32::to_string).collect();
        Ok([
            ("LOCKKEEPER_LOCK", self.names.join(",")),
            ("LOCKKEEPER_TOKEN", tokens.join(",")),
            (RUN_VARIABLE, runs.join(",")),
        ])
    }

    /// Releases the locks, in bounded time. A loss that shows only now has ended no command, so the status stays
    /// the command's own.
    async fn release(&self, keeper: &Keeper, guard: Guard, ended: Outcome, signals: &mut Signals) -> Outcome {
        // The renewal task has sent the leave of a lost hold; closing the keeper waits for it a moment.
        let lost = guard.state() == State::Lost;
        let (least, most) = RELEASE_LIMITS;
        let limit = guard.valid_for().clamp(least, most);
        let released = if lost {
            guard.protect(async {}).await
        } else {
            let no_reply = || Err(Error::temporary("the engine", "release the lock", "no reply in time"));
            let ending = self.let_go(keeper, guard, matches!(ended, Ok(exit::SUCCESS)));
            signals.unless_ended(limit, ending).await.unwrap_or_else(no_reply)
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

    /// Releases the locks, or leaves them held for as long as was promised.
    async fn let_go(&self, keeper: &Keeper, guard: Guard, has_succeeded: bool) -> lockkeeper::Result<()> {
        let rest = guard.outlives();
        if self.with.is_some() && !self.release && keeper.check_detach(rest).is_ok() {
            return guard.detach(rest).await.map(|_| ());
        }
        if self.retry_failed && !has_succeeded {
            guard.release_at_once().await
        } else {
            guard.release().await
        }
    }
}
