//! Processes of their own, to be killed, paused or measured alone: this program, started again.

use crate::scale::{Limit, Scale};
use crate::{Result, Workload, workload};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// Where a helper finds its task; the words on its command line are those of the program that started it.
const TASK: &str = "LOCKKEEPER_BENCH_TASK";

/// What a helper is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Hold a lock until the end of the input, and tell when it is lost.
    Hold { url: String, name: String, ttl: Option<Duration> },
    /// Lock and release, together with others.
    Contend { url: String, name: String, limit: Limit },
    /// Serve the locks over HTTP until the end of the input.
    Serve { url: String },
    /// Run a workload, so that its memory and processor time are its own.
    Measure { url: String, workload: Workload, size: usize, scale: Box<Scale> },
}

/// A helper at work; killed on drop.
pub(crate) struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Helper {
    /// Starts one.
    pub(crate) fn start(task: &Task) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(TASK, serde_json::to_string(task)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("the helper has no output")?);
        let input = child.stdin.take();
        let (sender, lines) = mpsc::channel();
        // A thread reads, so that a helper which says nothing cannot hang the bench.
        std::thread::spawn(move || {
            for line in output.lines().map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, input, lines })
    }

    /// Waits for its next word.
    pub(crate) fn read<T: DeserializeOwned>(&self, patience: Duration) -> Result<T> {
        let line = self.lines.recv_timeout(patience).map_err(|_| "a helper process ended or hung")?;
        let word: Result<T, String> = serde_json::from_str(&line)?;
        Ok(word?)
    }

    /// Tells it to go on.
    pub(crate) fn go(&mut self) -> Result<()> {
        let input = self.input.as_mut().ok_or("the helper's input is closed")?;
        Ok(writeln!(input)?)
    }

    /// Closes its input and waits for its end.
    pub(crate) fn end(mut self, patience: Duration) -> Result<()> {
        self.input = None;
        let end = Instant::now() + patience;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                return Err("a helper process did not end".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Kills it with SIGKILL; does not wait for its end.
    pub(crate) fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill()?)
    }

    /// Stops it where it stands.
    pub(crate) fn pause(&self) -> Result<()> {
        self.signal(rustix::process::Signal::STOP)
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) -> Result<()> {
        self.signal(rustix::process::Signal::CONT)
    }

    fn signal(&self, signal: rustix::process::Signal) -> Result<()> {
        Ok(rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a workload in a process of its own.
pub(crate) fn measure<T: DeserializeOwned>(task: &Task, patience: Duration) -> Result<T> {
    Helper::start(task)?.read(patience)
}

/// If this process was started as a helper, does its task and says so.
pub(crate) fn run_if_asked() -> bool {
    let Ok(task) = std::env::var(TASK) else { return false };
    let outcome = serde_json::from_str::<Task>(&task).map_err(Into::into).and_then(|task| match task {
        Task::Hold { url, name, ttl } => workload::hold::run(&url, &name, ttl),
        Task::Contend { url, name, limit } => workload::processes::contend(&url, &name, limit),
        Task::Serve { url } => workload::serve::process::run(&url),
        Task::Measure { url, workload, size, scale } => {
            workload.run_here(&url, size, &scale).and_then(|sample| say(&sample))
        }
    });
    if let Err(error) = outcome {
        let _ = say_line(&Err::<(), _>(error.to_string()));
    }
    true
}

/// A helper's word.
pub(crate) fn say<T: Serialize>(word: &T) -> Result<()> {
    say_line(&Ok::<_, String>(word))
}

fn say_line<T: Serialize>(word: &Result<T, String>) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(word)?)?;
    Ok(output.flush()?)
}

/// Waits for the word to go on.
pub(crate) fn wait_for_go() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(())
}
