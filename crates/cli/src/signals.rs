//! The signals that concern the command: received here, to be passed on.

use crate::exit::{Failure, UNAVAILABLE};
use rustix::process::Signal;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal as listen};

/// Those that end a process unless it handles them: they end a wait for a lock.
const ENDING: [Signal; 6] =
    [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// Those that matter only once there is a command to pass them to.
const RUNNING: [Signal; 3] = [Signal::CONT, Signal::TSTP, Signal::WINCH];

/// What a release that is under way gets after a signal: enough for an engine that answers.
const LAST_MOMENT: Duration = Duration::from_millis(100);

/// The signals that are received.
pub(crate) struct Signals {
    ignored: u64,
    streams: Vec<(Signal, Stream)>,
    /// A signal came after the command's end.
    cut_short: bool,
    /// One of those came by which users and supervisors end a program.
    asked_to_end: bool,
}

impl Signals {
    /// Receives the signals that end a wait.
    pub(crate) fn ending() -> Result<Self, Failure> {
        let mut signals = Self {
            ignored: ignored_from_the_start(),
            streams: Vec::with_capacity(9),
            cut_short: false,
            asked_to_end: false,
        };
        signals.add(&ENDING)?;
        Ok(signals)
    }

    /// Receives also those that are passed on to a running command.
    pub(crate) fn add_running(&mut self) -> Result<(), Failure> {
        self.add(&RUNNING)
    }

    /// A signal that was ignored from the start (`nohup`, a job in the background of a script) stays ignored, here and
    /// in the command, which inherits that.
    fn add(&mut self, signals: &[Signal]) -> Result<(), Failure> {
        for signal in signals {
            if self.streams.iter().any(|(known, _)| known == signal) {
                continue;
            }
            if self.ignored & (1 << (signal.as_raw() - 1)) == 0 {
                let stream = listen(SignalKind::from_raw(signal.as_raw())).map_err(|error| {
                    Failure::new(UNAVAILABLE, format!("could not receive signals: {error}"))
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
        let signal = std::future::poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await;
        self.asked_to_end |= [Signal::TERM, Signal::INT, Signal::QUIT].contains(&signal);
        signal
    }

    /// Whether TERM, INT or QUIT has come, up to now.
    pub(crate) async fn asked_to_end(&mut self) -> bool {
        // Lets the runtime receive what has arrived meanwhile.
        tokio::task::yield_now().await;
        loop {
            tokio::select! {
                biased;
                _ = self.next() => {}
                () = std::future::ready(()) => return self.asked_to_end,
            }
        }
    }

    /// The next signal that ends a process.
    ///
    /// Cancel safety: dropping the future loses no such signal.
    pub(crate) async fn next_ending(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ENDING.contains(&signal) {
                return signal;
            }
        }
    }

    /// Waits for something up to a limit. A signal that ends a process leaves it, and all that comes later, a last
    /// moment; `None` if that is over as well.
    pub(crate) async fn unless_ended<T>(
        &mut self,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        if !self.cut_short {
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                () = tokio::time::sleep(limit) => return None,
                _ = self.next_ending() => self.cut_short = true,
            }
        }
        tokio::time::timeout(LAST_MOMENT, work).await.ok()
    }
}

/// The signals ignored by this process, a bit each. Only the kernel's own account shows them without unsafe code;
/// where there is none, none counts as ignored.
fn ignored_from_the_start() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    field.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}
