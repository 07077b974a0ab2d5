//! The same faults for all: who holds, who still believes it, and who was told.

mod belief;
mod cancel;
mod server;
mod show;

use crate::catalog::{FAULTED, Peer};
use crate::options::Options;
use crate::program::Program;
use belief::{Belief, Fact, watch};
use lockkeeper_bench::Result;
use lockkeeper_bench::kit::fresh_name;
use lockkeeper_bench::machine::Machine;
use serde::{Deserialize, Serialize};
use server::Place;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// etcd grants no shorter lease.
const TTL: Duration = Duration::from_secs(2);
/// The waiter has asked after this.
const MOMENT: Duration = Duration::from_millis(500);
/// Nobody else gets a lock later than this.
const GRANTED: Duration = Duration::from_secs(12);
/// How long two holders are watched.
const WATCHED: Duration = Duration::from_secs(6);
/// A program replies after this, unless its server does not.
const REPLIES: Duration = Duration::from_secs(30);

/// What is done to the holder or its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Fault {
    /// SIGSTOP of the holder until another has the lock, or longer than its TTL.
    Pause,
    /// The holder's connections stay open and carry nothing.
    Cut,
    /// SIGKILL of the server, which keeps its data, and a new start.
    Restart,
    /// The same, and the server has forgotten everything.
    Forget,
    /// SIGKILL of the leader of three.
    Leader,
}

impl Fault {
    pub const ALL: [Self; 5] = [Self::Pause, Self::Cut, Self::Restart, Self::Forget, Self::Leader];

    fn applies(self, engine: &str) -> bool {
        match self {
            Self::Forget => engine == "redis",
            Self::Leader => matches!(engine, "zookeeper" | "etcd"),
            _ => true,
        }
    }
}

/// All runs of a peer.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Results {
    faults: BTreeMap<Fault, Vec<Fact>>,
    /// Waits that were given up and yet kept the lock from others, of how many.
    orphans: Option<(usize, usize)>,
    /// Whether there were tokens, and each was greater than the one before.
    token: Option<bool>,
    note: Option<String>,
}

/// All runs, as they are saved.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    machine: Machine,
    repetitions: usize,
    peers: BTreeMap<String, Results>,
}

/// Puts everybody under every fault.
pub fn run(options: &Options) -> Result<()> {
    let mut saved =
        Saved { machine: Machine::here(), repetitions: options.scale.repetitions, peers: BTreeMap::new() };
    for path in &options.from {
        let text = std::fs::read_to_string(path)?;
        saved.peers.extend(serde_json::from_str::<Saved>(&text)?.peers);
    }
    if options.from.is_empty() {
        for peer in FAULTED.iter().filter(|peer| options.engines.iter().any(|name| name == peer.engine)) {
            saved.peers.insert(peer.name.into(), all_of(peer, options.scale.repetitions));
        }
    }
    let table = show::table(&saved);
    println!("{table}");
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string(&saved)?)?;
    }
    if let Some(path) = &options.markdown {
        let page = std::fs::read_to_string(path)?;
        std::fs::write(path, crate::page::renew(&page, "faults", &table)?)?;
    }
    Ok(())
}

fn all_of(peer: &Peer, repetitions: usize) -> Results {
    let mut results = Results::default();
    for fault in Fault::ALL.into_iter().filter(|fault| fault.applies(peer.engine)) {
        for _ in 0..repetitions {
            eprintln!("{fault:?}, {}", peer.name);
            match one(peer, fault) {
                Ok((fact, tokens)) => {
                    eprintln!("   {fact:?} {tokens:?}");
                    results.faults.entry(fault).or_default().push(fact);
                    let grows = match tokens {
                        [Some(first), Some(second)] => Some(first < second),
                        _ => None,
                    };
                    results.token = match (results.token, grows) {
                        (Some(all), Some(grows)) => Some(all && grows),
                        (known, new) => known.or(new),
                    };
                }
                Err(error) => {
                    eprintln!("   {error}");
                    results.note = Some(format!("{fault:?}: {error}"));
                }
            }
        }
    }
    eprintln!("Cancel, {}", peer.name);
    match cancel::orphans(peer) {
        Ok(orphans) => results.orphans = Some(orphans),
        Err(error) => results.note = Some(format!("Cancel: {error}")),
    }
    results
}

/// One fault, and the tokens of the first and of the second holder.
fn one(peer: &Peer, fault: Fault) -> Result<(Fact, [Option<u64>; 2])> {
    let place = Place::start(peer.engine, fault)?;
    let name = fresh_name("faults").replace('/', "-");
    let mut first = Program::start(peer.command(&place.url_of_holder(), TTL)?)?;
    let mut second = Program::start(peer.command(&place.url(), TTL)?)?;
    let (_, token) = first.call(&peer.line("a", "token", &name), REPLIES)?;
    let mut tokens = [number(&token), None];
    second.send(&peer.line("b", "token", &name))?;
    if let Some((_, reply)) = second.reply_within("b", MOMENT)? {
        return Err(format!("the second one was not made to wait: {reply}").into());
    }
    let check = peer.line("a", "held", &name);
    let started = Instant::now();
    let (granted, belief) = if fault == Fault::Pause {
        first.pause()?;
        // It is the first that the holder does when it goes on.
        first.send(&check)?;
        let granted = second.reply_within("b", GRANTED)?;
        let resumed = Instant::now();
        first.resume()?;
        let mut belief = Belief::since(resumed);
        watch(&mut first, &check, &mut belief, WATCHED)?;
        // What nobody could know while the holder stood still is counted from when it goes on.
        (granted.map(|(at, reply)| (at.max(resumed), reply)), belief)
    } else {
        place.hit(fault);
        let mut belief = Belief::since(started);
        let mut granted = None;
        while granted.is_none() && started.elapsed() < GRANTED {
            watch(&mut first, &check, &mut belief, Duration::from_millis(20))?;
            match second.reply_within("b", Duration::ZERO)? {
                // Its server was gone; it asks again.
                Some((_, reply)) if reply.starts_with("failed") => {
                    second.send(&peer.line("b", "token", &name))?;
                }
                reply => granted = reply,
            }
        }
        if granted.is_some() {
            watch(&mut first, &check, &mut belief, WATCHED)?;
        }
        (granted, belief)
    };
    place.heal();
    tokens[1] = granted.as_ref().and_then(|(_, reply)| number(reply));
    Ok((belief.against(granted.map(|(at, _)| at)), tokens))
}

/// The token of a reply.
fn number(reply: &str) -> Option<u64> {
    reply.strip_prefix("token ").and_then(|token| token.parse().ok())
}
