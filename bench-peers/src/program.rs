//! A peer program that runs, and the line protocol with it.

use lockkeeper_bench::Result;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// How long a program may take to start: a Java machine on a busy machine.
const STARTS: Duration = Duration::from_secs(60);
/// The line of a thread whose library says that the lock is lost.
const LOST: &str = "lost!";

/// When a line came, and what it says.
pub type Line = (Instant, String);

pub struct Program {
    child: Child,
    input: ChildStdin,
    lines: Receiver<Line>,
    /// Lines of threads that nobody has waited for yet.
    early: HashMap<String, VecDeque<Line>>,
    /// When each thread was told of a loss.
    lost: HashMap<String, Instant>,
    /// Threads whose reply is still to come.
    asked: HashMap<String, usize>,
}

impl Program {
    pub fn start(mut command: Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(std::io::Result::ok) {
                if sender.send((Instant::now(), line)).is_err() {
                    break;
                }
            }
        });
        let program =
            Self { child, input, lines, early: HashMap::new(), lost: HashMap::new(), asked: HashMap::new() };
        match program.lines.recv_timeout(STARTS) {
            Ok((_, line)) if line == "ready" => Ok(program),
            _ => Err(format!("{:?} is not installed, or failed", command.get_program()).into()),
        }
    }

    /// Sends a command, `THREAD VERB …`, without waiting for the reply.
    pub fn send(&mut self, command: &str) -> Result<()> {
        *self.asked.entry(thread_of(command).into()).or_default() += 1;
        Ok(writeln!(self.input, "{command}")?)
    }

    /// The reply of a thread, if it comes in time.
    pub fn reply_within(&mut self, thread: &str, limit: Duration) -> Result<Option<Line>> {
        let end = Instant::now() + limit;
        loop {
            if let Some(line) = self.early.get_mut(thread).and_then(VecDeque::pop_front) {
                return Ok(Some(line));
            }
            if !self.read(end.saturating_duration_since(Instant::now()))? {
                return Ok(None);
            }
        }
    }

    /// Takes in a line; false if none comes in time.
    fn read(&mut self, limit: Duration) -> Result<bool> {
        match self.lines.recv_timeout(limit) {
            Ok((at, line)) => {
                let (thread, reply) = line.split_once(' ').unwrap_or((&line, ""));
                let asked = self.asked.entry(thread.into()).or_default();
                if reply == LOST {
                    self.lost.entry(thread.into()).or_insert(at);
                } else {
                    *asked = asked.saturating_sub(1);
                    self.early.entry(thread.into()).or_default().push_back((at, reply.into()));
                }
                Ok(true)
            }
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(false),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err("the program has ended".into()),
        }
    }

    /// Sends a command and waits for the reply.
    pub fn call(&mut self, command: &str, limit: Duration) -> Result<Line> {
        self.send(command)?;
        let reply = self.reply_within(thread_of(command), limit)?;
        let (at, reply) = reply.ok_or_else(|| format!("{command}: no reply within {limit:?}"))?;
        match reply.strip_prefix("failed ") {
            Some(error) => Err(error.to_owned().into()),
            None => Ok((at, reply)),
        }
    }

    /// When a thread was told that its lock is lost, as far as the program has said by now.
    pub fn told(&mut self, thread: &str) -> Result<Option<Instant>> {
        while self.read(Duration::ZERO)? {}
        Ok(self.lost.get(thread).copied())
    }

    /// Whether a thread is still to reply.
    pub fn is_busy(&self, thread: &str) -> bool {
        self.asked.get(thread).is_some_and(|asked| *asked > 0)
    }

    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// SIGKILL.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn thread_of(command: &str) -> &str {
    command.split(' ').next().unwrap_or_default()
}
