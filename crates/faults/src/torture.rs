//! The faults of clients and networks, let loose on an engine that runs already: can its users trust it?

use crate::cell::{self, Plan, Run};
use crate::fault::{Fault, OF_CLIENTS, OF_NETWORKS};
use crate::network::Network;
use crate::outcome::{Outcome, stated_elsewhere};
use crate::record::{Record, TTL};
use crate::shim::Shim;
use crate::{Error, Result};
use lockkeeper::Connect;
use lockkeeper::views::Abilities;
use serde::Serialize;
use std::time::Duration;

/// The engine, and what to do to it.
#[derive(Debug, Clone)]
pub struct Torture {
    url: String,
    ttl: Duration,
    seed: u64,
    rounds: u32,
    only: Vec<Fault>,
}

/// What came of one fault.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Verdict {
    /// Whether every promise held, but for what is documented.
    pub held: bool,
    /// The documented break that happened, if any: the engine's page says what to do about it.
    pub known: Option<String>,
    /// What held or did not, in words.
    pub words: String,
    /// The figures.
    #[serde(flatten)]
    pub record: Record,
}

/// An engine that was looked at, and the faults that it can be put under.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Prepared {
    /// The engine's style, and what it can do.
    pub abilities: Abilities,
    /// The faults.
    pub faults: Vec<Fault>,
    /// Whether a proxy can be put between; if not, the network's faults are left out.
    pub has_network: bool,
    /// Whether a clock can be made for the clients, with a C compiler; if not, its fault is left out.
    pub has_clock: bool,
    torture: Torture,
}

impl Torture {
    /// Of the engine that the URL names.
    pub fn of(url: impl Into<String>) -> Self {
        Self { url: url.into(), ttl: TTL, seed: rand::random::<u32>().into(), rounds: 2, only: Vec::new() }
    }

    /// The TTL of the claims, and so how long the faults last (default 2 s).
    #[must_use]
    pub fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    /// Decides when and whom the faults strike.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// How often each fault strikes (default 2).
    #[must_use]
    pub fn rounds(self, rounds: u32) -> Self {
        Self { rounds, ..self }
    }

    /// These faults only.
    #[must_use]
    pub fn only(self, only: Vec<Fault>) -> Self {
        Self { only, ..self }
    }

    /// The seed, to say it.
    pub fn chosen_seed(&self) -> u64 {
        self.seed
    }

    /// The faults that can be let loose on an engine from outside.
    pub fn faults() -> Vec<Fault> {
        OF_CLIENTS.into_iter().chain([Fault::Cancels, Fault::ClientClock]).chain(OF_NETWORKS).collect()
    }

    /// Connects, to see what the engine can do.
    ///
    /// # Errors
    /// When it is not reachable, when its locks are not shared with other processes, or when a fault that was chosen cannot
    /// be let loose on it.
    pub fn prepare(mut self) -> Result<Prepared> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (abilities, ttl) = runtime.block_on(async {
            let keeper = Connect::to(&self.url).ttl(self.ttl).connect().await?;
            let seen = (keeper.abilities(), keeper.ttl());
            keeper.close().await;
            Ok::<_, Error>(seen)
        })?;
        if !abilities.across_processes {
            return Err(Error::usage(format!(
                "{} is for the tasks of one process: there is nothing to test",
                abilities.engine
            )));
        }
        // A session's server may give a longer one.
        self.ttl = self.ttl.max(ttl);
        let has_network = Network::in_front_of(&self.url).is_some();
        let has_clock = Shim::build(tempfile::tempdir()?.path()).is_ok();
        let applies = |fault: &Fault| {
            (has_network || !OF_NETWORKS.contains(fault)) && (has_clock || *fault != Fault::ClientClock)
        };
        if let Some(fault) = self.only.iter().find(|fault| !Self::faults().contains(fault) || !applies(fault))
        {
            return Err(Error::usage(format!("{fault} cannot be let loose on this engine")));
        }
        let is_wanted = |fault: &Fault| self.only.is_empty() || self.only.contains(fault);
        let faults = Self::faults().into_iter().filter(applies).filter(is_wanted).collect();
        Ok(Prepared { abilities, faults, has_network, has_clock, torture: self })
    }
}

impl Prepared {
    /// The TTL of the claims.
    pub fn ttl(&self) -> Duration {
        self.torture.ttl
    }

    /// Lets one fault loose, in a namespace of its own, and waits until nothing is left of it.
    ///
    /// # Errors
    /// When the engine cannot be reached before the fault.
    pub fn run(&self, fault: Fault) -> Result<Verdict> {
        let torture = &self.torture;
        let plan = Plan {
            url: torture.url.clone(),
            namespace: format!("lockkeeper-torture-{:016x}", rand::random::<u64>()),
            ttl: torture.ttl,
            servers: None,
            fault,
            mixture: Vec::new(),
            outcome: stated_elsewhere(self.abilities.engine, self.abilities.style, fault),
            seed: torture.seed,
            rounds: torture.rounds,
            time: None,
            patience: 1,
        };
        let run = cell::run(&plan)?;
        let record = Record::of(&format!("{}:{}", self.abilities.engine, self.abilities.style), &plan, &run);
        Ok(Verdict::of(plan.outcome, &run, record))
    }
}

/// What was done.
fn deed(fault: Fault) -> &'static str {
    match fault {
        Fault::Pause => "a process was stopped in the middle of a hold for longer than the TTL, and went on",
        Fault::Kill => "a process was killed in the middle of a hold",
        Fault::Block => "a process blocked its executor for longer than the TTL",
        Fault::ClientFiles => "a process could open no file and no connection for longer than the TTL",
        Fault::ClientClock => "the clients' wall clock was set an hour ahead and an hour back",
        Fault::Tear => "connections ended in the middle of requests and replies",
        Fault::Cancels => "waits were given up at random moments",
        Fault::Cut => "nothing passed between clients and servers for longer than the TTL",
        Fault::CutRequests => "no request arrived for longer than the TTL",
        Fault::CutReplies => "no reply arrived for longer than the TTL",
        Fault::Delay => "the network was slow",
        Fault::Reset => "connections were reset",
        Fault::HalfOpen => "connections went dead without a sign",
        Fault::HalfOpenClients => "connections went dead, and only the servers knew",
        _ => "a fault struck",
    }
}

impl Verdict {
    fn of(stated: Outcome, run: &Run, record: Record) -> Self {
        let documented =
            stated.documented().filter(|_| record.surprise.is_none() && !run.findings.is_empty());
        let known = documented.map(|documented| documented.to_string());
        let deed = deed(record.fault);
        let words = match (&record.surprise, &known) {
            (Some(surprise), _) => {
                format!("{deed}: DID NOT HOLD ({} findings): {surprise}", run.findings.len())
            }
            (None, Some(known)) => format!(
                "{deed}: known: {known}, for {:.1} s at the longest in {} holds; see the engine's page",
                record.overlap_ms as f64 / 1000.0,
                record.holds
            ),
            (None, None) => format!("{deed}: {}", what_held(&record)),
        };
        Self { held: record.surprise.is_none(), known, words, record }
    }
}

fn what_held(record: &Record) -> String {
    let told = if record.lost > 0 {
        format!("{} holds were lost, and no holder still believed in one when the next began", record.lost)
    } else {
        "no hold was lost".to_owned()
    };
    format!(
        "never two holders in {} holds; {told}; tokens only grew; everybody was served again within {:.1} s; nothing was left \
         behind",
        record.holds,
        record.waited_ms as f64 / 1000.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge;
    use crate::resource::Sums;
    use lockkeeper_conformance::history::Recorder;

    #[test]
    fn every_fault_is_told_in_words() {
        for fault in Torture::faults() {
            assert_ne!(deed(fault), "a fault struck", "{fault}");
        }
    }

    /// What is said of a fault after which there were two holders.
    fn verdict(stated: Outcome) -> Verdict {
        let recorder = Recorder::new();
        for client in [1, 2] {
            let claim = recorder.claim(client, 0, client.into());
            claim.invokes(0, 1, 1);
            claim.is_granted(1_000_000_000, client.into(), 2_500_000_000);
        }
        let history = recorder.history();
        let findings = judge::broken(&history);
        let surprise = judge::surprise(stated, &findings, &Sums::default());
        let record =
            Record { fault: Fault::HalfOpenClients, surprise, overlap_ms: 1500, ..Record::default() };
        let sums = Sums::default();
        Verdict::of(stated, &Run { history, strikes: Vec::new(), findings, sums, seconds: 1.0 }, record)
    }

    #[test]
    fn a_documented_break_is_said_to_be_known() {
        let known = verdict(stated_elsewhere("postgres", "session", Fault::HalfOpenClients));
        assert!(known.held && known.known.is_some(), "{}", known.words);
        assert!(
            known.words.contains("known: two holders, for 1.5 s")
                && known.words.ends_with("the engine's page")
        );
        let broken = verdict(stated_elsewhere("postgres", "queue", Fault::HalfOpenClients));
        assert!(!broken.held && broken.known.is_none() && broken.words.contains("DID NOT HOLD"));
    }

    #[test]
    fn an_engine_of_one_process_is_refused() {
        let refused = Torture::of("memory:torture").prepare().expect_err("nothing to test");
        assert!(refused.to_string().contains("one process"), "{refused}");
    }

    #[test]
    fn a_network_is_needed_for_its_faults() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("file:{}", folder.path().join("locks").display());
        let prepared = Torture::of(&url).prepare().expect("files");
        assert!(prepared.faults.contains(&Fault::Pause) && !prepared.faults.contains(&Fault::Cut));
        assert!(Torture::of(&url).only(vec![Fault::Cut]).prepare().is_err());
    }
}
