//! `lockkeeper release`: the end of a detached hold.

use crate::arguments::EngineOptions;
use crate::exit::{Outcome, SUCCESS};
use crate::handles::HandleArgument;
use clap::Args;

/// Free a lock, by the handle that 'acquire' has printed
///
/// Exits with 76 if the engine no longer has the hold.
#[derive(Debug, Args)]
pub(crate) struct Release {
    #[command(flatten)]
    handle: HandleArgument,
}

impl Release {
    /// Releases the hold.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        let handle = self.handle.read()?;
        let keeper = options.connect(None).await?;
        let guard = keeper.attach(&handle).await?;
        guard.release().await?;
        keeper.close().await;
        Ok(SUCCESS)
    }
}
