//! `lockkeeper elect`: a command while this candidate leads, or who leads.

use crate::arguments::EngineOptions;
use crate::commands::{run::Run, watch};
use crate::complete;
use crate::exit::{self, Failure, Outcome, SUCCESS};
use crate::json;
use crate::output::{self, Reader, reader_is_gone, warn};
use crate::signals::Signals;
use crate::supervise::{OnAsk, OnLost};
use crate::table::printable;
use clap::Args;
use clap_complete::ArgValueCompleter;
use lockkeeper::views::ClaimView;
use lockkeeper_core::engine::parse_duration;
use serde::Serialize;
use std::ffi::OsString;
use std::time::{Duration, SystemTime};

const EXAMPLES: &str = "\
Examples:
  lockkeeper elect scheduler -- ./scheduler       wait to lead, then run; campaign again after a loss
  lockkeeper elect scheduler --observe            a line whenever the leader changes
  lockkeeper elect scheduler --observe --json | jq .leader.who

A candidate that loses the lead ends its command as 'run' does, and campaigns again. When the command
ends by itself, the candidate resigns and exits with the command's status; TERM, INT and QUIT end both.";

const USAGE: &str = "\
lockkeeper elect [OPTIONS] <NAME> -- <COMMAND>...
       lockkeeper elect <NAME> --observe [--json]";

/// How often to notice that the reader of the changes has gone.
const READER_EVERY: Duration = Duration::from_millis(500);

/// Run a command while it leads an election, or observe who leads
#[derive(Debug, Args)]
#[command(override_usage = USAGE, after_help = format!("{EXAMPLES}\n\n{}", exit::HELP))]
pub(crate) struct Elect {
    /// Name of the election; the leader holds the lock of this name
    #[arg(value_name = "NAME", add = ArgValueCompleter::new(complete::names_or_command))]
    name: String,

    /// Print who leads, then a line whenever that changes; do not campaign
    #[arg(long, conflicts_with_all = ["wait", "no_wait", "once", "on_lost", "on_ask", "holder", "command"])]
    observe: bool,

    /// Print an object per change, one on each line
    #[arg(long, requires = "observe")]
    json: bool,

    /// Campaign for up to DURATION [default: no limit]
    #[arg(short, long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "no_wait")]
    wait: Option<Duration>,

    /// Lead at once, or not at all
    #[arg(short, long)]
    no_wait: bool,

    /// Exit when the lead is lost (76), instead of campaigning again
    #[arg(long)]
    once: bool,

    /// What to do with the command when the lead is lost
    #[arg(long, value_enum, default_value_t = OnLost::Term, value_name = "ACTION")]
    on_lost: OnLost,

    /// What to do with the command when somebody asks for the lead (evict --ask); after TERM the candidate resigns and exits
    #[arg(long, value_enum, default_value_t = OnAsk::Term, value_name = "ACTION")]
    on_ask: OnAsk,

    /// Name shown to operators and observers as the leader [default: the command's name]
    #[arg(long, value_name = "TEXT")]
    holder: Option<String>,

    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND", add = ArgValueCompleter::new(complete::names_or_command))]
    command: Vec<OsString>,
}

impl Elect {
    /// Campaigns and runs the command, or observes.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        if self.observe {
            return self.observe(options).await;
        }
        if self.command.is_empty() {
            return Err(Failure::usage(format!(
                "no command is given: put '--' before it, or give --observe\n\nUsage: {USAGE}"
            )));
        }
        let wait = (self.wait, self.no_wait);
        let actions = (self.on_lost, self.on_ask);
        Run::leading(self.name, wait, actions, !self.once, self.holder, self.command).run(options).await
    }

    /// Prints the changes until a signal comes or the reader is gone.
    async fn observe(self, options: &EngineOptions) -> Outcome {
        let mut signals = Signals::ending()?;
        let keeper = tokio::select! {
            keeper = options.connect_within(None, None) => keeper?,
            signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
        };
        let mut leaders = keeper.election(&self.name).observe();
        loop {
            let change = tokio::select! {
                biased;
                signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
                change = leaders.changed() => change,
                () = tokio::time::sleep(READER_EVERY) => match reader_is_gone() {
                    true => break,
                    false => continue,
                },
            };
            match change {
                Ok(leader) => {
                    if output::print(&self.line(leader)?)? == Reader::Gone {
                        break;
                    }
                }
                Err(error) if error.is_temporary() => warn(&error.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        keeper.close().await;
        Ok(SUCCESS)
    }

    fn line(&self, leader: Option<ClaimView>) -> Result<String, Failure> {
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        if self.json {
            return json::line(&Change { time, name: &self.name, leader });
        }
        let line = match leader {
            Some(leader) => {
                let token = leader.token.map_or_else(String::new, |token| format!(" token={token}"));
                format!("{time} leads {} {} claim={}{token}", self.name, watch::describe(&leader), leader.id)
            }
            None => format!("{time} nobody {}", self.name),
        };
        Ok(printable(&line) + "\n")
    }
}

/// A change as JSON.
#[derive(Serialize)]
struct Change<'a> {
    time: String,
    name: &'a str,
    leader: Option<ClaimView>,
}
