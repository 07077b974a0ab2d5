//! What a case works with: keepers on the engine under test, in a namespace of the case's own.

use crate::faulty::Faulty;
use crate::suite::Subject;
use lockkeeper::views::{Abilities, LockView};
use lockkeeper::{Connect, Guard, Keeper, Result};
use lockkeeper_core::engine::Clock;
use std::sync::Arc;
use std::time::Duration;

/// How long anything may take that must happen in the end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One case's view of the engine under test.
#[derive(Clone)]
pub struct Bench {
    subject: Arc<Subject>,
    abilities: Abilities,
    namespace: String,
}

impl Bench {
    pub(crate) fn new(subject: Arc<Subject>, abilities: Abilities) -> Self {
        let namespace = format!("case-{:016x}", rand::random::<u64>());
        Self { subject, abilities, namespace }
    }

    pub(crate) fn abilities(&self) -> Abilities {
        self.abilities
    }

    pub(crate) fn url(&self) -> &str {
        &self.subject.url
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A TTL that a case may wait for.
    pub(crate) fn short_ttl(&self) -> Duration {
        self.subject.short_ttl
    }

    /// A TTL that does not pass while a case runs, so that nothing is freed by its passing.
    pub(crate) fn long_ttl(&self) -> Duration {
        PATIENCE * 2
    }

    pub(crate) fn restart(&self) {
        (self.subject.restart.as_ref().expect("the case needs a restart"))();
    }

    pub(crate) fn can_restart(&self) -> bool {
        self.subject.restart.is_some()
    }

    /// A keeper with the default TTL.
    pub(crate) async fn keeper(&self) -> Keeper {
        self.keeper_with(lockkeeper::DEFAULT_TTL).await
    }

    pub(crate) async fn keeper_with(&self, ttl: Duration) -> Keeper {
        self.connect(ttl).connect().await.expect("a keeper")
    }

    pub(crate) fn connect(&self, ttl: Duration) -> Connect {
        Connect::to(self.url()).namespace(&self.namespace).ttl(ttl)
    }

    /// A keeper whose engine can be made to fail.
    pub(crate) async fn faulty(&self, ttl: Duration) -> (Keeper, Arc<Faulty>) {
        let faulty = Faulty::wrap(self.connect(ttl).engine().await.expect("an engine"));
        let keeper =
            Keeper::builder().ttl(ttl).namespace(&self.namespace).build(faulty.clone()).expect("a keeper");
        (keeper, faulty)
    }

    /// The engine's answer. Where servers fail while the cases run, one that fails just as a wait ends leaves the wait with a
    /// temporary error and no answer: it is asked again. A server that nobody disturbs is asked once.
    pub(crate) async fn answer<T>(&self, ask: impl AsyncFn() -> Result<T>) -> T {
        loop {
            match ask().await {
                Err(error) if error.is_temporary() && self.subject.fails_over => {
                    eprintln!("asked again: {error}");
                }
                answered => break answered.expect("an answer"),
            }
        }
    }

    /// The lock as the engine shows it, if it is in use.
    pub(crate) async fn look(&self, keeper: &Keeper, name: &str) -> Option<LockView> {
        let locks = keeper.inspect(name).await.expect("a look inside");
        locks.into_iter().find(|lock| lock.name == name)
    }

    /// Waits until this number of claims wait for the lock. Only where waiters can be seen: on fair engines.
    pub(crate) async fn until_waiting(&self, keeper: &Keeper, name: &str, waiters: usize) {
        self.until("the waiters stand in the queue", async || {
            self.look(keeper, name).await.map_or(0, |lock| lock.waiters().count()) == waiters
        })
        .await;
    }

    /// Waits until nothing is left of the lock.
    pub(crate) async fn until_idle(&self, keeper: &Keeper, name: &str) {
        self.until("nothing is left of the lock", async || self.look(keeper, name).await.is_none()).await;
    }

    /// Polls a condition that must come true in the end.
    pub(crate) async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let start = Clock::Boot.now();
        while !condition().await {
            assert!(Clock::Boot.now().since(start) < PATIENCE, "not after {PATIENCE:?}: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Waits for something that must happen in the end.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("not after {PATIENCE:?}: {what}"),
    }
}

/// Waits for a guard that must come in the end.
pub(crate) async fn soon_held(future: impl Future<Output = Result<Guard>>) -> Guard {
    soon("a grant", future).await.expect("a grant")
}

/// A free lock must be had without waiting. (On an engine where a departure is settled in the background, that
/// may take a moment, so this waits, but not for a TTL to pass: use a long one.)
pub(crate) async fn is_free(keeper: &Keeper, name: &str) {
    let guard =
        keeper.mutex(name).lock_within(PATIENCE).await.expect("an answer").expect("the lock to be free");
    guard.release().await.expect("a release");
}
