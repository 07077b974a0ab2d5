//! One engine and style under test: what is started for it, and which cases run on it.

use crate::bench::Bench;
use crate::cases::{self, Case, Need};
use crate::program::Program;
use libtest_mimic::Trial;
use lockkeeper::views::Abilities;
use std::any::Any;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// How long a case may take before it counts as stuck.
const CASE_LIMIT: Duration = Duration::from_secs(180);
/// With this variable set, every case reports how long it took.
const TIMES: &str = "LOCKKEEPER_TEST_TIMES";

/// A running engine under test: its URL and whatever must stay alive with it.
#[must_use = "nothing is tested until it runs"]
pub struct Subject {
    pub(crate) url: String,
    pub(crate) short_ttl: Duration,
    pub(crate) fails_over: bool,
    pub(crate) restart: Option<Box<dyn Fn() + Send + Sync>>,
    /// The servers. Dropped after the last case of the suite.
    _kept: Vec<Box<dyn Any + Send + Sync>>,
}

impl Subject {
    /// The engine at this URL.
    pub fn at(url: impl Into<String>) -> Self {
        let short_ttl = Duration::from_secs(2);
        Self { url: url.into(), short_ttl, fails_over: false, restart: None, _kept: Vec::new() }
    }

    /// The TTL for cases that wait for one to pass (default 2 s).
    pub fn short_ttl(mut self, ttl: Duration) -> Self {
        self.short_ttl = ttl;
        self
    }

    /// Its servers fail while the cases run: a request may then have a temporary error for an answer.
    pub fn fails_over(mut self) -> Self {
        self.fails_over = true;
        self
    }

    /// How to restart the engine with its data, for engines whose tokens survive that.
    pub fn restart(mut self, restart: impl Fn() + Send + Sync + 'static) -> Self {
        self.restart = Some(Box::new(restart));
        self
    }

    /// Calls `action` on a thread of its own, again and again with a pause of `every` before each call, until the
    /// last case of the suite has ended: for faults that happen while the cases run.
    pub fn meanwhile(self, every: Duration, mut action: impl FnMut() + Send + 'static) -> Self {
        let (running, ended) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                action();
            }
        });
        self.fails_over().keep(running)
    }

    /// Keeps something alive as long as the suite runs: the server.
    pub fn keep(mut self, kept: impl Any + Send + Sync) -> Self {
        self._kept.push(Box::new(kept));
        self
    }
}

/// The suite for one engine and style.
#[derive(Clone)]
#[must_use = "nothing is tested until it runs"]
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

    /// Runs the cases that the command line selects, as the only suite of the test program. The engine is started
    /// when the first case needs it. Use a [`Program`] for several suites.
    pub fn run(self, start: impl FnOnce() -> Subject + Send + 'static) -> ExitCode {
        Program::new().suite("", self, start).run()
    }

    /// How many cases of this suite run at once on each core.
    pub(crate) fn per_core(&self) -> usize {
        self.per_core
    }

    /// Why the case does not apply to this engine and style, if so.
    pub(crate) fn reason_against(&self, case: &Case) -> Option<&'static str> {
        let by_author = self.cannot.iter().find(|(name, _)| *name == case.name).map(|(_, reason)| *reason);
        by_author.or_else(|| case.needs.iter().find_map(|need| need.missing(&self.abilities)))
    }

    /// The case as a named test.
    pub(crate) fn trial(&self, name: String, case: Case, started: &Arc<Started>) -> Trial {
        let abilities = self.abilities;
        let started = Arc::clone(started);
        Trial::test(name.clone(), move || {
            let subject = started.subject();
            // A case that restarts the server would fail its neighbours.
            let _turn = started.turn(case.needs.contains(&Need::DurableTokens));
            let begun = Instant::now();
            run_case(&case, abilities, subject);
            if std::env::var_os(TIMES).is_some() {
                eprintln!("time: {:.3} {name}", begun.elapsed().as_secs_f64());
            }
            Ok(())
        })
    }
}

pub(crate) type Start = Box<dyn FnOnce() -> Subject + Send>;

/// The engine, started once when first needed, and dropped with the last case that may need it.
pub(crate) struct Started {
    subject: OnceLock<Arc<Subject>>,
    start: std::sync::Mutex<Option<Start>>,
    /// Read by the cases that run side by side, written by one that must be alone with the engine.
    cases: RwLock<()>,
}

/// Held while a case runs.
enum Turn<'a> {
    Beside { _others: RwLockReadGuard<'a, ()> },
    Alone { _all: RwLockWriteGuard<'a, ()> },
}

impl Started {
    /// Not yet started.
    pub(crate) fn new(start: Start) -> Arc<Self> {
        let start = std::sync::Mutex::new(Some(start));
        Arc::new(Self { subject: OnceLock::new(), start, cases: RwLock::new(()) })
    }

    /// Waits until a case may run: alone with the engine, or beside others.
    fn turn(&self, alone: bool) -> Turn<'_> {
        // A case that failed must not fail the others.
        if alone {
            Turn::Alone { _all: self.cases.write().unwrap_or_else(PoisonError::into_inner) }
        } else {
            Turn::Beside { _others: self.cases.read().unwrap_or_else(PoisonError::into_inner) }
        }
    }

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
