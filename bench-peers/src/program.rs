//! Locks of other languages: a program is started once, asked by a line for each run, and answers with its turns.

use crate::contest::{Contestant, Place};
use lockkeeper_bench::Result;
use lockkeeper_bench::kit::{Shape, Turns};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs");

struct Program {
    name: &'static str,
    rival: &'static str,
    command: fn() -> Result<Command>,
    running: Option<Running>,
}

struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `redis-py` or `kazoo`, with the interpreter that has them.
pub fn python(name: &'static str, rival: &'static str) -> Box<dyn Contestant> {
    let command = || {
        let mut command = Command::new(std::env::var("PEERS_PYTHON").unwrap_or_else(|_| "python3".into()));
        command.arg(format!("{PROGRAMS}/peer.py"));
        Ok(command)
    };
    Box::new(Program { name, rival, command, running: None })
}

/// Curator, compiled at its first use by the Java that runs it.
pub fn java(name: &'static str, rival: &'static str) -> Box<dyn Contestant> {
    let command = || {
        let mut command = Command::new("java");
        command.args(["-cp", "/usr/share/java/*"]).arg(format!("{PROGRAMS}/CuratorPeer.java"));
        Ok(command)
    };
    Box::new(Program { name, rival, command, running: None })
}

impl Program {
    fn running(&mut self) -> Result<&mut Running> {
        if self.running.is_none() {
            let mut command = (self.command)()?;
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
            let input = child.stdin.take().ok_or("no input")?;
            let output = BufReader::new(child.stdout.take().ok_or("no output")?);
            self.running = Some(Running { child, input, output });
        }
        Ok(self.running.as_mut().ok_or("it does not run")?)
    }
}

impl Contestant for Program {
    fn name(&self) -> String {
        self.name.into()
    }

    fn rival(&self) -> Option<&'static str> {
        Some(self.rival)
    }

    fn take_turns(&mut self, place: &Place<'_>) -> Result<Vec<Turns>> {
        let shape = match place.shape {
            Shape::Contended(_) => "contended",
            _ => "spread",
        };
        let (count, limit) = (place.shape.contenders(), place.scale.limit);
        let (milliseconds, turns) = (limit.time.as_millis(), limit.turns);
        let name = self.name;
        let running = self.running()?;
        let (host, lock) = (place.host(), place.name);
        writeln!(running.input, "{name} {host} {lock} {shape} {count} {milliseconds} {turns}")?;
        let mut line = String::new();
        running.output.read_line(&mut line)?;
        if line.is_empty() {
            return Err(format!("{name} is not installed, or its program failed").into());
        }
        Ok(serde_json::from_str(&line)?)
    }
}
