//! A claim that is released, renewed, lost and asked for at the same time, and leaves exactly once.

use super::in_any_order;
use crate::claim::Claim;
use crate::clock::{Clock, Moment};
use crate::departure::Departures;
use crate::engine::{Engine, Kept, Memory, Queue};
use crate::life::tests::life;
use crate::life::{Life, Lifeline};
use crate::renewal::{Renewals, Rounds, Sent};
use crate::telemetry::Telemetry;
use crate::{LostReason, Token};
use shuttle::future::{block_on, spawn};
use shuttle::thread;
use std::sync::Arc;
use std::time::Duration;

/// The renewals of one keeper, without the task that sends them.
struct Keeping {
    rounds: Rounds,
    /// Keeps the receiving end of the departures.
    _task: crate::departure::DepartureTask,
}

fn keeping() -> Arc<Keeping> {
    let engine = Memory::engine();
    let (departures, task) = Departures::new();
    let telemetry = Arc::new(Telemetry::starting(&engine.abilities(), false));
    let (renewals, ttl) = (Arc::new(Renewals::new()), Duration::from_secs(10));
    let rounds = Rounds { renewals, departures, engine, telemetry, clock: Clock::Boot, ttl };
    Arc::new(Keeping { rounds, _task: task })
}

/// A claim that the engine has.
fn joined(keeping: &Keeping) -> Arc<Life> {
    let life = life();
    life.joined(Clock::Boot.now(), life.claim.ttl, None);
    keeping.rounds.renewals.add(&life);
    life
}

/// One round whose reply calls these claims dead.
fn round(keeping: &Keeping, is_dead: bool) {
    let lives = keeping.rounds.renewals.snapshot();
    let dead = lives.iter().filter(|_| is_dead).map(|life| life.claim.id).collect();
    let sent = lives.into_iter().map(|life| Sent { ttl: life.claim.ttl, life, change: 0 });
    keeping.rounds.confirm(sent, &Kept { dead, ..Kept::default() }, Clock::Boot.now());
}

#[test]
fn a_release_beside_a_renewal_leaves_once_and_is_not_undone() {
    in_any_order(|| {
        let keeping = keeping();
        let life = joined(&keeping);
        let renewing = thread::spawn({
            let keeping = Arc::clone(&keeping);
            move || round(&keeping, false)
        });
        // As `Stay::leave` does: out of the registry, then the leave.
        keeping.rounds.renewals.remove(&life);
        assert!(life.take_leave(), "nobody else sends it");
        renewing.join().unwrap();
        assert!(!keeping.rounds.renewals.contains(life.claim.id), "a renewal has entered it again");
        assert!(!life.take_leave(), "it would leave a second time");
        assert_eq!(life.lost(), None, "a release is no loss");
    });
}

#[test]
fn a_claim_that_is_gone_leaves_once_whether_it_is_lost_or_released_first() {
    in_any_order(|| {
        let keeping = keeping();
        let life = joined(&keeping);
        let renewing = thread::spawn({
            let keeping = Arc::clone(&keeping);
            move || round(&keeping, true)
        });
        keeping.rounds.renewals.remove(&life);
        let left_here = life.take_leave();
        renewing.join().unwrap();
        assert!(!keeping.rounds.renewals.contains(life.claim.id));
        // Either the release sends the leave, or the loss has.
        assert!(left_here || life.lost() == Some(LostReason::Gone));
        assert!(!life.take_leave(), "it would leave a second time");
    });
}

#[test]
fn a_waiter_for_the_end_is_notified_of_it() {
    in_any_order(|| {
        let line = Lifeline::new();
        let life = life();
        life.joined(Clock::Boot.now(), life.claim.ttl, None);
        let waiting = spawn({
            let life = Arc::clone(&life);
            async move { life.when_lost().await }
        });
        let ending = thread::spawn({
            let line = line.clone();
            move || line.end()
        });
        // Tied before or after its end: it is lost.
        life.joined(Clock::Boot.now(), life.claim.ttl, Some(&line));
        ending.join().unwrap();
        assert_eq!(block_on(waiting).unwrap(), LostReason::Gone);
    });
}

#[test]
fn a_new_claim_is_looked_at_in_time() {
    in_any_order(|| {
        let keeping = keeping();
        let renewals = Arc::clone(&keeping.rounds.renewals);
        let planning = spawn(async move {
            let mut tick = Moment::NEVER;
            // As `Rounds::run` does, until it would look at the claim soon enough.
            loop {
                let plan =
                    renewals.plan(tick, Clock::Boot.now(), Duration::from_secs(10)).expect("it is open");
                if plan.looks_at != Moment::NEVER {
                    return plan.looks_at;
                }
                tick = Moment::NEVER;
                renewals.wake.notified().await;
            }
        });
        let life = joined(&keeping);
        let looks_at = block_on(planning).unwrap();
        assert!(looks_at <= life.deadline(), "a lost wake-up: it would look too late");
    });
}

/// Claims of an engine in memory.
async fn join(locks: &Memory, name: &str) -> Arc<Life> {
    let mut claim: Claim = life().claim.clone();
    claim.name = crate::name::LockName::from_engine(name);
    let joined = locks.join(&claim).await.expect("a place");
    assert!(joined.token > Token(0));
    let life = Arc::new(Life::new(claim, Clock::Boot));
    life.joined(Clock::Boot.now(), life.claim.ttl, None);
    life
}

#[test]
fn everything_that_was_dropped_has_left_after_a_flush_and_before_the_engine_is_closed() {
    // The departures' timers belong to a runtime of tokio's, which nobody drives: none of them goes off.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _entered = runtime.enter();
    in_any_order(|| {
        let locks = Memory::new();
        let engine: Arc<dyn Engine> = locks.connect();
        let (departures, task) = Departures::new();
        let leaving = spawn(task.run(Arc::clone(&engine)));
        let dropping: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(|name| {
                let (departures, locks) = (departures.clone(), locks.clone());
                spawn(async move {
                    let life = join(&locks, name).await;
                    departures.send(&life);
                    // A second drop of the same claim.
                    departures.send(&life);
                    departures.flush().await;
                    assert!(locks.list(name, 9).await.unwrap().is_empty(), "it has not left");
                })
            })
            .collect();
        drop(departures);
        block_on(async {
            for dropped in dropping {
                dropped.await.unwrap();
            }
            leaving.await.expect("it ends when nobody can send any more");
        });
    });
}
