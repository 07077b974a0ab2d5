//! The signals that concern the command: heard here, to be passed on.

use crate::exit::{Failure, UNAVAILABLE};
use rustix::process::Signal;
use std::task::Poll;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal as listen};

/// Those that end a process unless it says otherwise: while we wait for a lock they end the wait.
const ENDING: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Those that matter only once there is a command to pass them to.
const RUNNING: [Signal; 3] = [Signal::CONT, Signal::TSTP, Signal::WINCH];

/// The signals we listen to.
pub(crate) struct Signals {
    ignored: u64,
    streams: Vec<(Signal, Stream)>,
}

impl Signals {
    /// Listens to the signals that end a wait.
    pub(crate) fn ending() -> Result<Self, Failure> {
        let mut signals = Self { ignored: ignored_from_the_start(), streams: Vec::with_capacity(9) };
        signals.add(&ENDING)?;
        Ok(signals)
    }

    /// Listens also to those that are passed on to a running command.
    pub(crate) fn add_running(&mut self) -> Result<(), Failure> {
        self.add(&RUNNING)
    }

    /// A signal that was ignored when we started (`nohup`, a job in the background of a script) stays ignored, by
    /// us and by the command, which inherits that.
    fn add(&mut self, signals: &[Signal]) -> Result<(), Failure> {
        for signal in signals {
            if self.ignored & (1 << (signal.as_raw() - 1)) == 0 {
                let stream = listen(SignalKind::from_raw(signal.as_raw())).map_err(|error| {
                    Failure::new(UNAVAILABLE, format!("could not listen to signals: {error}"))
                })?;
                self.streams.push((*signal, stream));
            }
        }
        Ok(())
    }

    /// The next signal.
    ///
    /// Cancel safety: dropping the future loses no signal.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The signals ignored by this process, a bit each. Nothing but the kernel's own account tells it without
/// unsafe code; where there is none, we take it that none is ignored.
fn ignored_from_the_start() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    field.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}
