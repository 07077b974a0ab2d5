//! `lockkeeper watch`: the locks in use, live.

use crate::arguments::EngineOptions;
use crate::commands::ls;
use crate::complete;
use crate::exit::{Failure, Outcome, SUCCESS};
use crate::location;
use crate::output::{self, Reader, reader_is_gone, warn};
use crate::signals::Signals;
use crate::table::{cut, printable, width};
use clap::Args;
use clap_complete::ArgValueCompleter;
use lockkeeper::views::{ClaimView, LockView, Standing, deadlocks};
use lockkeeper_core::engine::parse_duration;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::time::{Duration, SystemTime};

const EXAMPLES: &str = "\
Examples:
  lockkeeper watch                       a table that stays up to date, in a terminal
  lockkeeper watch orders/ | tee log     a line for every change, in a pipe";

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
}

impl Watch {
    /// Looks until a signal comes or the reader is gone.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        let keeper = options.connect(None).await?;
        let place = location::describe(options, &keeper)?;
        let mut signals = Signals::ending()?;
        let screen = std::io::stdout().is_terminal().then(Screen::enter).transpose()?;
        let mut seen = Seen::default();
        loop {
            let locks = tokio::select! {
                biased;
                signal = signals.next() => return Err(Failure::by_signal(signal.as_raw())),
                locks = location::locks(&keeper, &self.prefix) => locks,
            };
            let text = match locks {
                Ok(locks) if screen.is_some() => picture(locks, &place),
                Ok(locks) => seen.changes(&locks),
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

/// What was seen at the last look.
#[derive(Default)]
struct Seen {
    /// Of each claim the lock, whether it held, and whose it is.
    claims: BTreeMap<String, (String, Standing, String)>,
    deadlocks: BTreeSet<String>,
}

impl Seen {
    /// A line for every claim that came, was granted or left since the last look, and for every new deadlock.
    fn changes(&mut self, locks: &[LockView]) -> String {
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let mut lines = String::new();
        let mut line = |event: &str, rest: &str| {
            lines += &printable(&format!("{now} {event} {rest}"));
            lines.push('\n');
        };
        let claims = || locks.iter().flat_map(|lock| lock.claims.iter().map(move |claim| (lock, claim)));
        let present: BTreeMap<_, _> = claims()
            .map(|(lock, claim)| (claim.id.clone(), (lock.name.clone(), claim.standing, describe(claim))))
            .collect();
        for (id, (lock, _, who)) in self.claims.iter().filter(|(id, _)| !present.contains_key(*id)) {
            line("left", &format!("{lock} {who} claim={id}"));
        }
        for (lock, claim) in claims() {
            let before = self.claims.get(&claim.id).map(|(_, standing, _)| *standing);
            if before != Some(claim.standing) {
                let token = claim.token.map_or_else(String::new, |token| format!(" token={token}"));
                let rest = format!("{} {} claim={}{token}", lock.name, describe(claim), claim.id);
                line(&claim.standing.to_string(), &rest);
            }
        }
        let circles: BTreeSet<String> = deadlocks(locks)
            .iter()
            .map(|circle| circle.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
            .collect();
        circles.difference(&self.deadlocks).for_each(|circle| line("deadlock?", circle));
        *self = Self { claims: present, deadlocks: circles };
        lines
    }
}

/// The holder of a claim, as words of a line.
pub(crate) fn describe(claim: &ClaimView) -> String {
    if claim.foreign {
        return format!("who={:?} client=another", claim.holder.text);
    }
    let run = claim.holder.run().map_or_else(String::new, |run| format!(" run={run}"));
    format!("who={:?} host={} pid={}{run}", claim.holder.text, claim.holder.machine(), claim.holder.pid)
}
