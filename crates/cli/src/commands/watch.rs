//! `lockkeeper watch`: the locks in use, live.

use crate::arguments::EngineOptions;
use crate::commands::ls;
use crate::exit::{Outcome, SUCCESS};
use crate::output::{self, Reader, reader_is_gone, warn};
use crate::table::printable;
use clap::Args;
use lockkeeper::address::parse_duration;
use lockkeeper::{ClaimView, LockView, Standing};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, SystemTime};

const EXAMPLES: &str = "\
Examples:
  lockkeeper watch                       a table that stays up to date, in a terminal
  lockkeeper watch orders/ | tee log     a line for every change, in a pipe";

/// Clears the screen from the top left corner on.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Watch the locks in use: a live table in a terminal, a line for every change in a pipe
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Watch {
    /// Only locks whose name begins like this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// How often to look
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "500ms")]
    every: Duration,
}

/// What was last seen of a claim: the lock, how it stood, whose it is.
type Seen = BTreeMap<String, (String, Standing, String)>;

impl Watch {
    /// Looks until nobody reads any more.
    pub(crate) async fn run(self, options: &EngineOptions) -> Outcome {
        let keeper = options.connect(None).await?;
        let live = std::io::stdout().is_terminal();
        let mut seen = Seen::new();
        loop {
            match keeper.inspect(&self.prefix).await {
                Ok(locks) => {
                    let text = if live { screen(&locks) } else { changes(&mut seen, &locks) };
                    if output::print(&text)? == Reader::Gone {
                        break;
                    }
                }
                Err(error) if error.is_temporary() => warn(&error.to_string()),
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(self.every.max(Duration::from_millis(10))).await;
            if reader_is_gone() {
                break;
            }
        }
        keeper.close().await;
        Ok(SUCCESS)
    }
}

/// The whole screen, cut to its height.
fn screen(locks: &[LockView]) -> String {
    let height = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).map_or(24, |size| size.ws_row);
    let circles = ls::circles(locks);
    let room = usize::from(height).saturating_sub(3 + circles.lines().count()).max(1);
    let (shown, hidden) = locks.split_at(locks.len().min(room));
    let mut text = CLEAR.to_owned() + &ls::list(shown);
    if !hidden.is_empty() {
        text += &format!("… and {} more\n", hidden.len());
    }
    text + &circles
}

/// A line for every claim that came, was granted or left since the last look.
fn changes(seen: &mut Seen, locks: &[LockView]) -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let mut lines = String::new();
    let mut line = |event: &str, lock: &str, rest: &str| {
        lines += &printable(&format!("{now} {event} {lock} {rest}"));
        lines.push('\n');
    };
    let mut present = Seen::new();
    for (lock, claim) in locks.iter().flat_map(|lock| lock.claims.iter().map(move |claim| (lock, claim))) {
        present.insert(claim.id.clone(), (lock.name.clone(), claim.standing, describe(claim)));
    }
    for (id, (lock, _, who)) in seen.iter().filter(|(id, _)| !present.contains_key(*id)) {
        line("left", lock, &format!("{who} claim={id}"));
    }
    for (lock, claim) in locks.iter().flat_map(|lock| lock.claims.iter().map(move |claim| (lock, claim))) {
        let before = seen.get(&claim.id).map(|(_, standing, _)| *standing);
        if before != Some(claim.standing) {
            let token = claim.token.map_or_else(String::new, |token| format!(" token={token}"));
            line(
                &claim.standing.to_string(),
                &lock.name,
                &format!("{} claim={}{token}", describe(claim), claim.id),
            );
        }
    }
    *seen = present;
    lines
}

fn describe(claim: &ClaimView) -> String {
    format!("who={:?} host={} pid={}", claim.holder.text, claim.holder.host, claim.holder.pid)
}
