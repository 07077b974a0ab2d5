//! The server in a process of its own, so that its memory and processor time are its own.

use crate::helper::{self, Helper, Task};
use crate::runtime::{self, Threads};
use crate::target::connect;
use crate::{Result, process};
use lockkeeper_serve::{Listener, Server, Settings};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Longer than any run; the end of the input ends it sooner.
const LONGEST: Duration = Duration::from_secs(3_600);

/// The helper's first word: where it listens.
#[derive(Debug, Serialize, Deserialize)]
struct Listening(String);

/// The reply to each line of its input: what it has used so far.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) memory_bytes: f64,
}

/// A server at work; killed on drop.
pub(crate) struct Served {
    pub(crate) url: String,
    helper: Mutex<Helper>,
    patience: Duration,
}

impl Served {
    /// Starts one before the engine at this URL.
    pub(crate) fn start(url: &str, patience: Duration) -> Result<Self> {
        // One connection for each of many waiters.
        lockkeeper_serve::raise_descriptor_limit();
        let helper = Helper::start(&Task::Serve { url: url.into() })?;
        let Listening(url) = helper.read(patience)?;
        Ok(Self { url, helper: Mutex::new(helper), patience })
    }

    /// What it has used so far.
    pub(crate) fn usage(&self) -> Result<Usage> {
        let mut helper = self.helper.lock().unwrap_or_else(PoisonError::into_inner);
        helper.go()?;
        helper.read(self.patience)
    }

    /// Ends it as an operator does, so that nothing is left at the engine.
    pub(crate) fn end(self) -> Result<()> {
        let helper = self.helper.into_inner().unwrap_or_else(PoisonError::into_inner);
        helper.end(self.patience)
    }
}

/// The helper's part: serves until the end of its input.
pub(crate) fn run(url: &str) -> Result<()> {
    lockkeeper_serve::raise_descriptor_limit();
    runtime::run(Threads::Many, LONGEST, async {
        let keeper = connect(url, None).await?;
        let listener = Listener::bind("127.0.0.1:0", None).await?;
        helper::say(&Listening(listener.to_string()))?;
        let (sender, ended) = tokio::sync::oneshot::channel::<()>();
        std::thread::spawn(move || {
            for _ in std::io::stdin().lock().lines().map_while(std::io::Result::ok) {
                let usage =
                    Usage { cpu_seconds: process::cpu_seconds(), memory_bytes: process::memory_bytes() };
                if helper::say(&usage).is_err() {
                    break;
                }
            }
            drop(sender);
        });
        let server = Server::new(keeper.clone(), Settings::default());
        server
            .serve(listener, async {
                let _ = ended.await;
            })
            .await;
        keeper.close().await;
        Ok(())
    })
}
