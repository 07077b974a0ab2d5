//! `lockkeeper acquire`: a hold that lasts from one step to the next.

use crate::arguments::EngineOptions;
use crate::commands::run::parse_permits;
use crate::exit::{self, Failure, Outcome, SUCCESS};
use crate::output::Reader;
use crate::signals::Signals;
use crate::{complete, handles, waiting};
use clap::Args;
use clap_complete::ArgValueCompleter;
use lockkeeper::views::Demand;
use lockkeeper::{Guard, Keeper, MultiLock, Wanted};
use lockkeeper_core::engine::parse_duration;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  handle=$(lockkeeper acquire deploy --for 30m)          wait for 'deploy', and hold it for half an hour
  lockkeeper run --with \"$handle\" -- ./deploy            run a step under it
  lockkeeper renew \"$handle\" --for 30m                   half an hour from now on
  lockkeeper release \"$handle\"                           free it";

/// How long the engine gets for the leave of what was dropped, before the program ends without its reply.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

const USAGE: &str = "lockkeeper acquire [OPTIONS] <NAME> --for <DURATION>";

/// Hold a lock without a command, and print a handle for the next step
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = EXAMPLES)]
pub(crate) struct Acquire {
    /// Name of the lock, such as orders/42
    #[arg(add = ArgValueCompleter::new(complete::names))]
    name: String,

    /// Hold the lock for DURATION, unless it is renewed or released
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    duration: Duration,

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

    /// Name shown to operators as the holder [default: lockkeeper]
    #[arg(long, value_name = "TEXT")]
    holder: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Acquire {
    /// Waits for the lock, detaches the hold and prints its handle.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        // Before anything is sent, so that a signal that ends this process also ends the claim.
        let mut signals = Signals::ending()?;
        let (begun, limit) = (Instant::now(), if self.no_wait { Some(Duration::ZERO) } else { self.wait });
        let keeper = tokio::select! {
            keeper = options.connect_within(self.holder.clone(), limit) => keeper?,
            signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
        };
        let outcome = self.with_keeper(&keeper, begun.elapsed(), &mut signals).await;
        signals.unless_ended(CLOSE_LIMIT, keeper.close()).await;
        outcome
    }

    async fn with_keeper(
        &self,
        keeper: &Keeper,
        connected_after: Duration,
        signals: &mut Signals,
    ) -> Outcome {
        let names = std::slice::from_ref(&self.name);
        let acquiring = async {
            let Some(guard) = self.acquire(keeper, connected_after).await? else { return Ok(None) };
            guard.detach(self.duration).await.map(Some)
        };
        let handle = tokio::select! {
            biased;
            handle = acquiring => handle.map_err(Failure::before_hold)?,
            signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
            never = waiting::show(keeper, names) => match never {},
            never = waiting::warn_of_itself(keeper, names) => match never {},
        };
        let Some(handle) = handle else {
            let lock = signals.unless_ended(CLOSE_LIMIT, waiting::find(keeper, &self.name)).await.flatten();
            let held = lock.map(|lock| format!("; it is held by {}", waiting::held_by(&lock)));
            let message = format!("did not acquire the lock {}{}", self.name, held.unwrap_or_default());
            return Err(Failure::new(self.conflict_exit_code, message));
        };
        let printed = handles::print(keeper, &handle, self.json);
        if !matches!(printed, Ok(Reader::There)) {
            // Nobody has the handle, so nobody could release it.
            keeper.attach(&handle).await?.release().await?;
        }
        printed.map(|_| SUCCESS)
    }

    async fn acquire(&self, keeper: &Keeper, connected_after: Duration) -> lockkeeper::Result<Option<Guard>> {
        let demand = match self.permits {
            Some(permits) => permits,
            None if self.read => Demand::Shared,
            None => Demand::Exclusive,
        };
        keeper.check_detach(self.duration)?;
        let lock = MultiLock::new([Wanted::new(keeper, &self.name, demand)]);
        match self.wait {
            _ if self.no_wait => lock.try_lock().await,
            Some(limit) => lock.lock_within(waiting::rest_of(limit, connected_after)).await,
            None => lock.lock().await.map(Some),
        }
    }
}
