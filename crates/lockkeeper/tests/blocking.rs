//! The API for plain threads: the whole Lock interface without async.

use lockkeeper::blocking::{Cancel, Keeper, MultiLock};
use lockkeeper::{Connect, Error, State, Wanted};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn keeper() -> Keeper {
    Keeper::connect("memory:").unwrap()
}

#[test]
fn a_thread_enters_again_and_another_thread_waits() {
    let keeper = keeper();
    let outer = keeper.mutex("m").lock().unwrap();
    let inner = keeper.mutex("m").lock().unwrap();
    assert_eq!(outer.token().unwrap(), inner.token().unwrap());
    let other = std::thread::spawn({
        let keeper = keeper.clone();
        move || keeper.mutex("m").try_lock().unwrap().is_none()
    });
    assert!(other.join().unwrap(), "another thread is another owner");
    inner.release().unwrap();
    outer.release().unwrap();
    let other = std::thread::spawn(move || keeper.mutex("m").try_lock().unwrap().is_some());
    assert!(other.join().unwrap());
}

#[test]
fn threads_exclude_each_other() {
    let (keeper, counter) = (keeper(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let guard = keeper.mutex("counter").lock().unwrap();
                    let read = counter.load(SeqCst);
                    std::thread::yield_now();
                    counter.store(read + 1, SeqCst);
                    guard.release().unwrap();
                }
            });
        }
    });
    assert_eq!(counter.load(SeqCst), 200);
}

#[test]
fn a_wait_can_be_interrupted_and_leaves_nothing() {
    let (keeper, cancel) = (keeper(), Cancel::new());
    let held = keeper.mutex("m").lock().unwrap();
    let waiter = std::thread::spawn({
        let (keeper, cancel) = (keeper.clone(), cancel.clone());
        move || keeper.mutex("m").lock_unless(&cancel).unwrap().is_none()
    });
    while keeper.inspect("m").unwrap()[0].claims.len() < 2 {
        std::thread::yield_now();
    }
    cancel.cancel();
    assert!(waiter.join().unwrap());
    held.release().unwrap();
    while !keeper.inspect("m").unwrap().is_empty() {
        std::thread::yield_now();
    }
    assert!(keeper.mutex("m").lock_unless(&cancel).unwrap().is_none(), "a used handle stays used");
}

#[test]
fn timed_and_plain_tries() {
    let keeper = keeper();
    let held = keeper.mutex("m").lock_within(LONG).unwrap().unwrap();
    let other = std::thread::spawn({
        let keeper = keeper.clone();
        move || keeper.mutex("m").lock_within(Duration::from_millis(20)).unwrap().is_none()
    });
    assert!(other.join().unwrap());
    held.release().unwrap();
}

#[test]
fn every_face_has_a_blocking_twin() {
    let keeper = keeper();
    let reader = keeper.rwlock("rw").read().unwrap();
    let (send, receive) = mpsc::channel();
    std::thread::spawn({
        let keeper = keeper.clone();
        move || {
            let second = keeper.rwlock("rw").try_read().unwrap().is_some();
            send.send((second, keeper.rwlock("rw").try_write().unwrap().is_none())).unwrap();
        }
    });
    assert_eq!(receive.recv_timeout(LONG).unwrap(), (true, true));
    reader.release().unwrap();
    let writer = keeper.rwlock("rw").write().unwrap();
    writer.downgrade().unwrap();
    writer.release().unwrap();
    keeper.semaphore("s", 3).acquire(2).unwrap().release().unwrap();
    keeper.all(["a", "b"]).lock().unwrap().release().unwrap();
}

#[test]
fn a_fixed_lease_is_lost_at_its_end() {
    let keeper = keeper();
    let guard = keeper.mutex("m").lease(Duration::from_millis(150)).lock().unwrap();
    let reason = guard.lost_within(LONG).unwrap();
    assert!(reason.is_some_and(|error| error.is_lost()));
    assert_eq!(guard.state(), State::Lost);
}

#[test]
fn a_closed_keeper_frees_everything() {
    let keeper = keeper();
    let guard = keeper.mutex("m").lock().unwrap();
    keeper.close().unwrap();
    assert_eq!(guard.state(), State::Lost);
}

#[tokio::test]
async fn async_code_is_refused_instead_of_blocked() {
    let refused = Keeper::connect("memory:").unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
}

#[test]
fn a_multi_lock_shows_every_token() {
    let keeper = keeper();
    let wanted = ["b", "a"].map(|name| Wanted::exclusive(keeper.as_async(), name));
    let guard = MultiLock::new(wanted).lock().unwrap();
    let names: Vec<String> = guard.tokens().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["lockkeeper/a", "lockkeeper/b"]);
    assert_eq!(keeper.look("a").unwrap().unwrap().claims[0].id, guard.claim());
}

#[test]
fn an_evicted_holder_is_lost() {
    let keeper = Keeper::connect_with(Connect::to("memory:").ttl(Duration::from_millis(300))).unwrap();
    let guard = keeper.mutex("m").lock().unwrap();
    assert_eq!(guard.lease_left(), None);
    assert!(keeper.evict("m", &guard.claim()).unwrap());
    assert!(guard.lost().unwrap().is_lost());
    assert!(keeper.look("m").unwrap().is_none());
}

#[test]
fn an_election_is_observed_from_a_plain_thread() {
    let connect = Connect::to("memory:").ttl(Duration::from_secs(1)).holder("replica-1");
    let keeper = Keeper::connect_with(connect).unwrap();
    let election = keeper.election("scheduler");
    let mut leaders = election.observe();
    assert!(leaders.changed().unwrap().is_none(), "first the present one: nobody");
    let leading = election.campaign().unwrap();
    assert!(election.try_campaign().unwrap().is_none());
    assert!(election.campaign_within(Duration::from_millis(10)).unwrap().is_none());
    let leader = leaders.changed().unwrap().unwrap();
    assert_eq!((leader.holder.text.as_str(), leader.token), ("replica-1", leading.token().ok()));
    assert_eq!(leaders.changed_within(Duration::from_millis(300)).unwrap(), None, "nothing changes");
    assert_eq!(keeper.look("scheduler").unwrap().unwrap().claims.len(), 1, "an observer does not queue");
    leading.release().unwrap();
    assert!(leaders.next().unwrap().unwrap().is_none());
}

#[test]
fn a_condition_wakes_a_plain_thread() {
    let keeper = keeper();
    let waiter = std::thread::spawn({
        let keeper = keeper.clone();
        move || {
            let mutex = keeper.mutex("basket");
            let guard = mutex.lock().unwrap();
            keeper.condition("not-empty").wait(&mutex, guard).unwrap().release().unwrap();
        }
    });
    let notified = || {
        let _guard = keeper.mutex("basket").lock().unwrap();
        keeper.condition("not-empty").notify_one().unwrap()
    };
    while !notified() {
        std::thread::yield_now();
    }
    waiter.join().unwrap();
    let mutex = keeper.mutex("basket");
    let guard = mutex.lock().unwrap();
    let limit = Duration::from_millis(20);
    let (guard, woken) = keeper.condition("not-empty").wait_within(&mutex, guard, limit).unwrap();
    assert!(!woken);
    assert_eq!(keeper.condition("not-empty").notify_all().unwrap(), 0);
    guard.release().unwrap();
}
