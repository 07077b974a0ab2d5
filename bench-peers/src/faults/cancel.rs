//! Waits that are given up just as the lock becomes free: does one of them hold the lock on?

use super::REPLIES;
use super::server::Place;
use crate::catalog::Peer;
use crate::faults::Fault;
use crate::program::Program;
use lockkeeper_bench::Result;
use lockkeeper_bench::kit::fresh_name;
use std::time::Duration;

const ROUNDS: u32 = 30;
/// How long a wait goes on; the release comes from 8 ms before its end to 7 ms after.
const WAIT: Duration = Duration::from_millis(150);
const STEP: Duration = Duration::from_millis(1);
/// Nobody who polls looks less often.
const FREE_AFTER: Duration = Duration::from_secs(2);
/// Longer than all of a round, so that only an orphan is in the way.
const TTL: Duration = Duration::from_secs(20);

/// The orphans, and the waits that were given up.
pub fn orphans(peer: &Peer) -> Result<(usize, usize)> {
    let place = Place::start(peer.engine, Fault::Pause)?;
    let mut start = || Program::start(peer.command(&place.url(), TTL)?);
    let (mut holder, mut waiter) = (start()?, start()?);
    let (mut orphans, mut given_up) = (0, 0);
    for round in 0..ROUNDS {
        let name = fresh_name("cancel").replace('/', "-");
        let thread = format!("b{round}");
        holder.call(&peer.line("a", "lock", &name), REPLIES)?;
        waiter.send(&peer.line(&thread, "wait", &format!("{name} {}", WAIT.as_millis())))?;
        std::thread::sleep(WAIT - STEP * 8 + STEP * (round % 16));
        holder.call(&peer.line("a", "unlock", &name), REPLIES)?;
        let (_, got) = waiter.reply_within(&thread, REPLIES)?.ok_or("a wait without an end")?;
        if got == "locked" {
            waiter.call(&peer.line(&thread, "unlock", &name), REPLIES)?;
            continue;
        }
        given_up += 1;
        let next = peer.line("c", "wait", &format!("{name} {}", FREE_AFTER.as_millis()));
        if holder.call(&next, REPLIES)?.1 == "locked" {
            holder.call(&peer.line("c", "unlock", &name), REPLIES)?;
        } else {
            orphans += 1;
        }
    }
    Ok((orphans, given_up))
}
