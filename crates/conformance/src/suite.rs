//! The runner: one table of cases, each its own named test, on one engine and style.

use crate::bench::Bench;
use crate::cases::{self, Case};
use crate::helper;
use libtest_mimic::{Arguments, Trial};
use lockkeeper::Abilities;
use std::any::Any;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// How long a case may take before it counts as stuck.
const CASE_LIMIT: Duration = Duration::from_secs(180);

/// A running engine under test: its URL and whatever must stay alive with it.
pub struct Subject {
    pub(crate) url: String,
    pub(crate) short_ttl: Duration,
    pub(crate) restart: Option<Box<dyn Fn() + Send + Sync>>,
    /// Dropped with the process; the servers.
    _kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl Subject {
    /// The engine at this URL.
    pub fn at(url: impl Into<String>) -> Self {
        Self { url: url.into(), short_ttl: Duration::from_secs(2), restart: None, _kept: Vec::new() }
    }

    /// The TTL for cases that wait for one to pass (default 2 s).
    pub fn short_ttl(mut self, ttl: Duration) -> Self {
        self.short_ttl = ttl;
        self
    }

    /// How to restart the engine with its data, for engines whose tokens survive that.
    pub fn restart(mut self, restart: impl Fn() + Send + Sync + 'static) -> Self {
        self.restart = Some(Box::new(restart));
        self
    }

    /// Keeps something alive as long as the tests run: the server.
    pub fn keep(mut self, kept: impl Any + Send + Sync) -> Self {
        self._kept.push(Box::new(kept));
        self
    }
}

/// The suite for one engine and style.
pub struct Suite {
    abilities: Abilities,
    cannot: Vec<(&'static str, &'static str)>,
    /// How many cases run at once for each core.
    per_core: usize,
}

impl Suite {
    /// For an engine and style with these abilities.
    pub fn new(abilities: Abilities) -> Self {
        Self { abilities, cannot: Vec::new(), per_core: 1 }
    }

    /// Leaves out a case that this engine cannot do by its nature; the reason is shown.
    ///
    /// # Panics
    /// When there is no such case: then the exclusion is out of date.
    pub fn cannot(mut self, case: &'static str, reason: &'static str) -> Self {
        assert!(cases::all().iter().any(|known| known.name == case), "there is no case '{case}'");
        self.cannot.push((case, reason));
        self
    }

    /// For an engine with long TTLs, whose cases mostly wait: twice as many run at once.
    pub fn mostly_waits(mut self) -> Self {
        self.per_core = 2;
        self
    }

    /// Runs the cases that the command line asks for. The engine is started when the first one needs it.
    pub fn run(self, start: impl FnOnce() -> Subject + Send + 'static) -> ExitCode {
        if helper::is_asked_for() {
            return helper::run();
        }
        let mut arguments = Arguments::from_args();
        let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() * self.per_core);
        arguments.test_threads.get_or_insert(threads);
        let started = Arc::new(Started {
            subject: OnceLock::new(),
            start: std::sync::Mutex::new(Some(Box::new(start))),
        });
        let mut elsewhere: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut trials = Vec::new();
        for case in cases::all() {
            match self.reason_against(&case) {
                Some(reason) => elsewhere.entry(reason).or_default().push(case.name),
                None => trials.push(self.trial(case, &started)),
            }
        }
        if !arguments.list && arguments.filter.is_none() {
            for (reason, cases) in elsewhere {
                eprintln!("not here, since {reason}: {}", cases.join(", "));
            }
        }
        libtest_mimic::run(&arguments, trials).exit_code()
    }

    /// Why the case says nothing about this engine and style, if so.
    fn reason_against(&self, case: &Case) -> Option<&'static str> {
        let by_author = self.cannot.iter().find(|(name, _)| *name == case.name).map(|(_, reason)| *reason);
        by_author.or_else(|| case.needs.iter().find_map(|need| need.missing(&self.abilities)))
    }

    fn trial(&self, case: Case, started: &Arc<Started>) -> Trial {
        let abilities = self.abilities;
        let started = Arc::clone(started);
        Trial::test(case.name, move || {
            run_case(&case, abilities, started.subject());
            Ok(())
        })
    }
}

type Start = Box<dyn FnOnce() -> Subject + Send>;

/// The engine, started once when first needed.
struct Started {
    subject: OnceLock<Arc<Subject>>,
    start: std::sync::Mutex<Option<Start>>,
}

impl Started {
    fn subject(&self) -> Arc<Subject> {
        let start = || self.start.lock().expect("another case failed to start the engine").take();
        Arc::clone(self.subject.get_or_init(|| Arc::new(start().expect("the engine did not start")())))
    }
}

fn run_case(case: &Case, abilities: Abilities, subject: Arc<Subject>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime for the case");
    let bench = Bench::new(subject, abilities);
    runtime.block_on(async {
        let limited = tokio::time::timeout(CASE_LIMIT, (case.run)(bench));
        assert!(limited.await.is_ok(), "the case is stuck: no end after {CASE_LIMIT:?}");
    });
    // A stuck blocking task must not hang the whole run.
    runtime.shutdown_timeout(Duration::from_secs(5));
}
