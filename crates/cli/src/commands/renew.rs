//! `lockkeeper renew`: another time for a detached hold.

use crate::arguments::EngineOptions;
use crate::exit::{Outcome, SUCCESS};
use crate::handles::{self, HandleArgument};
use clap::Args;
use lockkeeper_core::engine::parse_duration;
use std::time::Duration;

/// Hold a lock for another time, by the handle that 'acquire' has printed
///
/// Exits with 76 if the engine no longer has the hold.
#[derive(Debug, Args)]
pub(crate) struct Renew {
    #[command(flatten)]
    handle: HandleArgument,

    /// Hold the lock for DURATION from now on
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    duration: Duration,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Renew {
    /// Renews the hold and prints its handle, which differs in the time only.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        let handle = self.handle.read()?;
        let keeper = options.connect(None).await?;
        let guard = keeper.attach(&handle).await?;
        let handle = guard.detach(self.duration).await?;
        handles::print(&keeper, &handle, self.json)?;
        keeper.close().await;
        Ok(SUCCESS)
    }
}
