//! `lockkeeper watch`: the locks in use, live.

mod changes;

pub(crate) use changes::describe;

use crate::arguments::EngineOptions;
use crate::commands::ls;
use crate::complete;
use crate::exit::{Failure, Outcome, SUCCESS};
use crate::location;
use crate::output::{self, Reader, reader_is_gone, warn};
use crate::signals::Signals;
use crate::table::{cut, printable, width};
use changes::Seen;
use clap::Args;
use clap_complete::ArgValueCompleter;
use lockkeeper::views::LockView;
use lockkeeper_core::engine::parse_duration;
use std::cmp::Reverse;
use std::io::IsTerminal;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  lockkeeper watch                       a table that stays up to date, in a terminal
  lockkeeper watch orders/ | tee log     a line for every change, in a pipe
  lockkeeper watch --json | jq .event    an object for every change";

/// Clears the screen from the top left corner on.
const CLEAR: &str = "\x1b[H\x1b[J";
/// The terminal's second screen, without a cursor; what was on the first comes back at the end.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// Watch the locks in use: a live table in a terminal, a line for every change in a pipe
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    /// Only locks whose name begins with PREFIX
    #[arg(default_value = "", hide_default_value = true, add = ArgValueCompleter::new(complete::names))]
    prefix: String,

    /// How often to look
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "500ms")]
    every: Duration,

    /// Print an object for every change, one on each line
    #[arg(long)]
    json: bool,
}

impl Watch {
    /// Looks until a signal comes or the reader is gone.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        let keeper = options.connect(None).await?;
        let place = location::describe(options, &keeper)?;
        let mut signals = Signals::ending()?;
        let is_table = std::io::stdout().is_terminal() && !self.json;
        let screen = is_table.then(Screen::enter).transpose()?;
        let mut seen = Seen::default();
        loop {
            let locks = tokio::select! {
                biased;
                signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
                locks = location::locks(&keeper, &self.prefix) => locks,
            };
            let text = match locks {
                Ok(locks) if screen.is_some() => picture(locks, &place),
                Ok(locks) => seen.changes(&locks, self.json)?,
                Err(error) if !error.is_temporary() => return Err(error.into()),
                Err(error) if screen.is_some() => format!("{CLEAR}{}\n", printable(&error.to_string())),
                Err(error) => {
                    warn(&error.to_string());
                    String::new()
                }
            };
            if output::print(&text)? == Reader::Gone {
                break;
            }
            tokio::select! {
                signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
                () = tokio::time::sleep(self.every.max(Duration::from_millis(10))) => {}
            }
            if reader_is_gone() {
                break;
            }
        }
        drop(screen);
        keeper.close().await;
        Ok(SUCCESS)
    }
}

/// The terminal's second screen, until it is dropped.
struct Screen;

impl Screen {
    fn enter() -> Result<Self, Failure> {
        output::print(ENTER)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = output::print(LEAVE);
    }
}

/// The whole screen, cut to its size: the longest wait first.
fn picture(mut locks: Vec<LockView>, place: &str) -> String {
    let (columns, height) = (width(false), height());
    locks.sort_by_cached_key(|lock| {
        let held = lock.holders().filter_map(|claim| claim.standing_for().or(claim.age)).max();
        (Reverse((ls::oldest_wait(lock), lock.waiters().count(), held)), lock.name.clone())
    });
    let circles: Vec<String> = ls::circles(&locks, columns).lines().map(str::to_owned).collect();
    let circles = &circles[..circles.len().min(height / 2)];
    // The heading and the line that counts the rest; the last line of the screen stays empty.
    let room = height.saturating_sub(3 + circles.len()).max(1);
    let (shown, hidden) = locks.split_at(locks.len().min(room));
    let mut text = CLEAR.to_owned() + &ls::list(shown, columns);
    let mut line = |line: &str| {
        text += &columns.map_or_else(|| line.to_owned(), |columns| cut(line, columns));
        text.push('\n');
    };
    if locks.is_empty() {
        line(ls::nothing(place).trim_end());
    }
    if !hidden.is_empty() {
        line(&format!("… and {} more", hidden.len()));
    }
    circles.iter().for_each(|circle| line(circle));
    text
}

fn height() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
    size.map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0).unwrap_or(24)
}
