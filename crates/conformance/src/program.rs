//! A test program of several suites: the styles and topologies of one engine, with and without TLS.

use crate::cases::{self, Case};
use crate::helper;
use crate::suite::{Start, Started, Subject, Suite};
use libtest_mimic::{Arguments, Trial};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Ways to an engine besides the usual one, and the variable for each: with the value `all`, every case runs that way, and
/// nothing else does. Otherwise the suites of these ways run the cases of [`cases::OVER_TLS`] only.
const WAYS: [(&str, &str); 2] = [(TLS, "LOCKKEEPER_TLS"), (POOLER, "LOCKKEEPER_POOLER")];
const TLS: &str = "tls";
const POOLER: &str = "pooler";

/// The suites of one test program, which runs their cases as tests named `SUITE::TOPIC::CASE`.
///
/// ```no_run
/// use lockkeeper_conformance::{Program, Subject, Suite};
///
/// fn main() -> std::process::ExitCode {
///     let suite = Suite::new(lockkeeper::engines()[0].styles[0]);
///     Program::new()
///         .suite("queue", suite.clone(), || Subject::at("redis://127.0.0.1:6379"))
///         .tls("queue", suite, || Subject::at("rediss://127.0.0.1:6380?ca=/etc/ssl/private-ca.pem"))
///         .run()
/// }
/// ```
#[derive(Default)]
#[must_use = "nothing is tested until it runs"]
pub struct Program {
    parts: Vec<Part>,
}

struct Part {
    name: String,
    suite: Suite,
    start: Start,
    /// The way to the engine, if it is not the usual one.
    way: Option<&'static str>,
}

impl Program {
    /// Without suites.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a suite. Its engine is started when the first of its cases needs it, and dropped after the last.
    pub fn suite(self, name: &str, suite: Suite, start: impl FnOnce() -> Subject + Send + 'static) -> Self {
        self.with(Part { name: name.into(), suite, start: Box::new(start), way: None })
    }

    /// Adds a suite whose engine is reached over TLS; its tests are named `tls::SUITE::TOPIC::CASE`. A dozen of its cases
    /// run, or all of them with `LOCKKEEPER_TLS=all`, which leaves out the suites without TLS.
    pub fn tls(self, name: &str, suite: Suite, start: impl FnOnce() -> Subject + Send + 'static) -> Self {
        self.by(TLS, name, suite, start)
    }

    /// Adds a suite whose engine is reached through a connection pooler; its tests are named `pooler::SUITE::TOPIC::CASE`. A
    /// dozen of its cases run, or all of them with `LOCKKEEPER_POOLER=all`, which leaves out the other suites.
    pub fn pooler(self, name: &str, suite: Suite, start: impl FnOnce() -> Subject + Send + 'static) -> Self {
        self.by(POOLER, name, suite, start)
    }

    fn by(
        self,
        way: &'static str,
        name: &str,
        suite: Suite,
        start: impl FnOnce() -> Subject + Send + 'static,
    ) -> Self {
        self.with(Part { name: format!("{way}::{name}"), suite, start: Box::new(start), way: Some(way) })
    }

    fn with(mut self, part: Part) -> Self {
        self.parts.push(part);
        self
    }

    /// Runs the cases that the command line selects.
    pub fn run(self) -> ExitCode {
        if helper::is_asked_for() {
            return helper::run();
        }
        let mut arguments = Arguments::from_args();
        let per_core = self.parts.iter().map(|part| part.suite.per_core()).max().unwrap_or(1);
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() * per_core);
        arguments.test_threads.get_or_insert(threads);
        let shows_reasons = !arguments.list && arguments.filter.is_none();
        let is_chosen = |variable: &str| std::env::var(variable).is_ok_and(|value| value == "all");
        let only = WAYS.iter().find(|(_, variable)| is_chosen(variable)).map(|(way, _)| *way);
        let trials = self.trials(only, shows_reasons);
        libtest_mimic::run(&arguments, trials).exit_code()
    }

    fn trials(self, only: Option<&str>, shows_reasons: bool) -> Vec<Trial> {
        let parts = self.parts.into_iter().filter(|part| only.is_none() || part.way == only);
        parts.flat_map(|part| part.trials(only.is_some(), shows_reasons)).collect()
    }
}

impl Part {
    fn trials(self, all: bool, shows_reasons: bool) -> Vec<Trial> {
        let started = Started::new(self.start);
        let prefix = if self.name.is_empty() { String::new() } else { format!("{}::", self.name) };
        let is_chosen = |case: &Case| self.way.is_none() || all || cases::OVER_TLS.contains(&case.name);
        let mut elsewhere: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut trials = Vec::new();
        for case in cases::all().into_iter().filter(is_chosen) {
            match self.suite.reason_against(&case) {
                Some(reason) => elsewhere.entry(reason).or_default().push(case.name),
                None => trials.push(self.suite.trial(format!("{prefix}{}", case.name), case, &started)),
            }
        }
        for (reason, cases) in elsewhere.iter().filter(|_| shows_reasons) {
            eprintln!("{prefix} not run, since {reason}: {}", cases.join(", "));
        }
        trials
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: Option<&str>) -> Vec<String> {
        let suite = Suite::new(lockkeeper::engines()[0].styles[0]);
        let program = Program::new().suite("plain", suite.clone(), || Subject::at("memory:plain")).tls(
            "plain",
            suite,
            || Subject::at("memory:tls"),
        );
        let trials = program.trials(only, false);
        trials.iter().map(|trial| trial.name().to_owned()).collect()
    }

    #[test]
    fn a_dozen_cases_run_over_tls_beside_the_others() {
        let names = names(None);
        let (tls, others): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.starts_with("tls::plain::"));
        assert!((10..=16).contains(&tls.len()), "{tls:?}");
        assert!(others.len() > 60, "{others:?}");
        assert!(others.iter().all(|name| name.starts_with("plain::")), "{others:?}");
    }

    #[test]
    fn every_case_runs_over_tls_if_asked_and_no_other() {
        let all = names(Some(TLS));
        assert!(all.iter().all(|name| name.starts_with("tls::plain::")), "{all:?}");
        let without = names(None).iter().filter(|name| name.starts_with("plain::")).count();
        assert_eq!(all.len(), without);
    }
}
