//! Waits while the engine is away: in the unfair mechanism, and for several locks.

use lockkeeper_core::engine::{
    Attempted, Claim, ClaimId, Clock, Grant, Kept, Left, LockName, Memory, Race, RaceEngine, Renewal,
};
use lockkeeper_core::{Abilities, Error, Guard, Keeper, LockView, Result, Token};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = SECOND;
/// How long a wait outlives an engine that does not reply.
const OUTAGE_LIMIT: Duration = Duration::from_secs(5);

const UP: u8 = 0;
const DOWN: u8 = 1;
const SILENT: u8 = 2;

/// One lock that is raced for, on a server that is up, refuses everything, or replies to nothing.
#[derive(Clone)]
struct Server {
    clock: Clock,
    state: Arc<AtomicU8>,
    /// Renewals fail.
    keeps_nothing: Arc<AtomicBool>,
    holder: Arc<Mutex<Option<ClaimId>>>,
}

impl Server {
    /// A server whose lock is held by somebody who stays.
    fn held() -> Self {
        let holder = Arc::new(Mutex::new(Some(ClaimId(1))));
        Self { clock: Clock::tokio(), state: Arc::default(), keeps_nothing: Arc::default(), holder }
    }

    fn keeper(&self) -> Keeper {
        let builder = Keeper::builder().ttl(TTL).outage_limit(OUTAGE_LIMIT);
        builder.build(Arc::new(RaceEngine(self.clone()))).unwrap()
    }

    fn is(&self, state: u8) {
        self.state.store(state, SeqCst);
    }

    fn free(&self) {
        *self.holder() = None;
    }

    fn holder(&self) -> MutexGuard<'_, Option<ClaimId>> {
        self.holder.lock().unwrap()
    }

    async fn reply(&self) -> Result<()> {
        match self.state.load(SeqCst) {
            UP => Ok(()),
            DOWN => Err(Error::temporary("server", "reply", "it is down")),
            _ => std::future::pending().await,
        }
    }

    fn waits(&self) -> JoinHandle<Result<Guard>> {
        let keeper = self.keeper();
        tokio::spawn(async move { keeper.mutex("m").lock().await })
    }
}

impl Race for Server {
    fn abilities(&self) -> Abilities {
        Abilities::new("server", "plain", "server:").detach()
    }
    fn clock(&self) -> Clock {
        self.clock
    }
    fn ttl(&self, asked: Duration) -> Duration {
        asked
    }
    async fn attempt(&self, claim: &Claim) -> Result<Attempted> {
        self.reply().await?;
        match *self.holder().get_or_insert(claim.id) == claim.id {
            true => Ok(Attempted::Granted(Grant { token: Token(1) })),
            false => Ok(Attempted::Busy { free_in: None }),
        }
    }
    async fn changed(&self, _: &Claim, _: Option<Duration>) -> Result<()> {
        sleep(SECOND / 10).await;
        self.reply().await
    }
    async fn keep(&self, _: &[Renewal]) -> Result<Kept> {
        if self.keeps_nothing.load(SeqCst) {
            return Err(Error::temporary("server", "renew", "it is down"));
        }
        self.reply().await.map(|()| Kept::default())
    }
    async fn leave(&self, claim: &Claim) -> Result<Left> {
        self.reply().await?;
        let mut holder = self.holder();
        let is_mine = *holder == Some(claim.id);
        if is_mine {
            *holder = None;
        }
        Ok(if is_mine { Left::Left } else { Left::NotThere })
    }
    async fn list(&self, _: &str, _: usize) -> Result<Vec<LockView>> {
        Ok(Vec::new())
    }
    async fn evict(&self, _: &LockName, _: ClaimId) -> Result<bool> {
        Ok(false)
    }
    async fn close(&self) {}
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_is_over_does_not_count_for_the_next_one() {
    let server = Server::held();
    let waiting = server.waits();
    for _ in 0..3 {
        server.is(DOWN);
        sleep(OUTAGE_LIMIT * 3 / 5).await;
        server.is(UP);
        sleep(OUTAGE_LIMIT * 10).await;
        assert!(!waiting.is_finished(), "the server is there");
    }
    server.free();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outage_longer_than_the_limit_ends_the_wait() {
    let server = Server::held();
    let (start, waiting) = (Instant::now(), server.waits());
    sleep(OUTAGE_LIMIT * 10).await;
    server.is(DOWN);
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.is_temporary(), "{error}");
    let after = start.elapsed() - OUTAGE_LIMIT * 10;
    assert!(after >= OUTAGE_LIMIT && after < OUTAGE_LIMIT + 2 * TTL, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_passes_after_an_outage_is_a_timeout_and_one_in_it_is_an_error() {
    let server = Server::held();
    let (keeper, start) = (server.keeper(), Instant::now());
    server.is(DOWN);
    let recovery = tokio::spawn({
        let server = server.clone();
        async move {
            sleep(3 * TTL).await;
            server.is(UP);
        }
    });
    assert!(keeper.mutex("m").lock_within(10 * TTL).await.unwrap().is_none(), "it is held");
    recovery.await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 10);
    let waiting = tokio::spawn(async move { keeper.mutex("m").lock_within(10 * TTL).await });
    sleep(9 * TTL).await;
    server.is(DOWN);
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.is_temporary(), "{error}");
}

/// Nobody knows whether the lock is held.
#[tokio::test(start_paused = true)]
async fn a_limit_that_passes_without_any_reply_is_an_error() {
    let server = Server::held();
    let keeper = server.keeper();
    server.is(SILENT);
    let error = keeper.mutex("m").lock_within(2 * TTL).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    let soon = keeper.mutex("m").lock_within(SECOND / 100).await;
    assert!(soon.unwrap().is_none(), "no reply can be expected in that time");
}

fn keeper(locks: &Memory) -> Keeper {
    Keeper::builder().ttl(TTL).build(locks.connect()).unwrap()
}

/// One that waits for the second of two locks and holds the first, and the one who holds the second.
async fn waits_for_the_second(locks: &Memory) -> (JoinHandle<Result<Guard>>, Guard) {
    let (keeper, other) = (keeper(locks), Keeper::builder().build(locks.connect()).unwrap());
    let second = other.mutex("b").lock().await.unwrap();
    let waiting = tokio::spawn(async move { keeper.all(["a", "b"]).lock().await });
    sleep(SECOND).await;
    assert!(other.mutex("a").try_lock().await.unwrap().is_none(), "it holds the first");
    (waiting, second)
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_evicted_while_the_next_is_waited_for_is_taken_again() {
    let locks = Memory::on_tokio_clock();
    let (waiting, second) = waits_for_the_second(&locks).await;
    let operator = keeper(&locks);
    let first = operator.look("a").await.unwrap().unwrap().claims[0].id.clone();
    assert!(operator.evict("a", &first).await.unwrap());
    sleep(5 * SECOND).await;
    assert!(!waiting.is_finished(), "it lost nothing that it had");
    second.release().await.unwrap();
    let both = waiting.await.unwrap().unwrap();
    assert_eq!(both.tokens().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_several_locks_outlives_an_outage_that_ends_a_hold() {
    let locks = Memory::on_tokio_clock();
    let (waiting, second) = waits_for_the_second(&locks).await;
    locks.cut(true);
    sleep(5 * TTL).await;
    locks.cut(false);
    sleep(SECOND).await;
    assert!(!waiting.is_finished(), "the second lock outlived it");
    second.release().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().tokens().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_limited_wait_for_several_locks_ends_in_an_outage_with_its_error() {
    let locks = Memory::on_tokio_clock();
    let second = Keeper::builder().build(locks.connect()).unwrap().mutex("b").lock().await.unwrap();
    let keeper = keeper(&locks);
    let waiting = tokio::spawn(async move { keeper.all(["a", "b"]).lock_within(4 * TTL).await });
    sleep(SECOND).await;
    locks.cut(true);
    let error = waiting.await.unwrap().unwrap_err();
    assert!(error.is_temporary(), "{error}");
    drop(second);
}

/// The server goes away between the grant and the request to keep it for a while.
#[tokio::test(start_paused = true)]
async fn an_outage_right_after_the_grant_is_no_loss_to_one_who_never_held() {
    let server = Server::held();
    server.free();
    let keeper = server.keeper();
    let both = keeper.all(["m"]).hold_at_least(60 * SECOND);
    server.keeps_nothing.store(true, SeqCst);
    let error = both.try_lock().await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    let waiting = tokio::spawn(async move { both.lock().await });
    sleep(5 * TTL).await;
    server.keeps_nothing.store(false, SeqCst);
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.outlives() > 50 * SECOND);
}
