//! The style 'queue' on a real file: order, wake-ups between processes, crashes, boots, and what is left behind.

use crate::support::{File, LONG_TTL, STUCK, soon, until};
use lockkeeper_core::State;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn waiters_of_two_engines_hold_in_order_and_are_woken_by_messages() {
    let file = File::new("queue");
    let keepers = [file.keeper(LONG_TTL).await, file.keeper(LONG_TTL).await];
    let first = keepers[0].mutex("job").lock().await.unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..10usize {
        let lock = keepers[number % 2].mutex("job");
        let order = Arc::clone(&order);
        waiters.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            order.lock().unwrap().push((number, guard.token().unwrap()));
            guard.release().await.unwrap();
        }));
        until(|| file.count("lockkeeper_claims") == number as i64 + 2).await;
    }
    let token = first.token().unwrap();
    first.release().await.unwrap();
    for waiter in waiters {
        soon(waiter).await.unwrap();
    }
    let order = order.lock().unwrap();
    assert_eq!(order.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    assert!(
        order[0].1 > token && order.is_sorted_by(|earlier, later| earlier.1 < later.1),
        "tokens grow: {order:?}"
    );
    assert_eq!(file.count("lockkeeper_claims"), 0, "an idle lock leaves no row");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_frees_its_lock_within_the_ttl() {
    let file = File::new("queue");
    let keeper = file.keeper(Duration::from_secs(10)).await;
    let ttl = Duration::from_millis(1000);
    let mut process = file.holder(ttl);
    assert!(keeper.mutex("job").try_lock().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { keeper.mutex("job").lock().await.unwrap().token().unwrap() });
    until(|| file.count("lockkeeper_claims") == 2).await;
    process.kill();
    soon(waiting).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_exclude_each_other() {
    let file = File::new("queue");
    let mut process = file.holder(LONG_TTL);
    let keeper = file.keeper(LONG_TTL).await;
    assert!(keeper.mutex("job").try_lock().await.unwrap().is_none());
    assert!(keeper.mutex("other").try_lock().await.unwrap().is_some());
    let held = &keeper.inspect("job").await.unwrap()[0];
    assert_ne!(held.claims[0].holder.pid, std::process::id());
    process.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_departure_wakes_only_the_claims_that_fit() {
    let file = File::new("queue");
    let keeper = file.keeper(LONG_TTL).await;
    let other = file.keeper(LONG_TTL).await;
    let readers = Arc::new(AtomicUsize::new(0));
    let writer = keeper.rwlock("stock").write().await.unwrap();
    let spawn_reader = || {
        let (lock, readers) = (other.rwlock("stock"), Arc::clone(&readers));
        tokio::spawn(async move {
            let _guard = lock.read().await.unwrap();
            readers.fetch_add(1, SeqCst);
            std::future::pending::<()>().await;
        })
    };
    let tasks = [spawn_reader(), spawn_reader(), spawn_reader()];
    until(|| file.count("lockkeeper_claims") == 4).await;
    writer.downgrade().await.unwrap();
    until(|| readers.load(SeqCst) == 3).await;
    assert!(keeper.rwlock("stock").try_write().await.unwrap().is_none());
    tasks.iter().for_each(|task| task.abort());
    drop(writer);
    let guard = soon(keeper.rwlock("stock").write()).await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_are_counted_across_engines() {
    let file = File::new("queue");
    let keepers = [file.keeper(LONG_TTL).await, file.keeper(LONG_TTL).await];
    let holding = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..12)
        .map(|number| {
            let (lock, holding) = (keepers[number % 2].semaphore("gpu", 3), Arc::clone(&holding));
            tokio::spawn(async move {
                for _ in 0..20 {
                    let guard = lock.acquire(1 + number as u32 % 2).await.unwrap();
                    let weight = 1 + number % 2;
                    assert!(holding.fetch_add(weight, SeqCst) + weight <= 3);
                    tokio::task::yield_now().await;
                    holding.fetch_sub(weight, SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_the_database_calls_expired_is_lost_and_stays_dead() {
    let file = File::new("queue");
    let ttl = Duration::from_secs(2);
    let (keeper, other) = (file.keeper(ttl).await, file.keeper(ttl).await);
    let guard = keeper.mutex("job").lock().await.unwrap();
    file.sql().execute("UPDATE lockkeeper_claims SET expires_at = 1", []).unwrap();
    let next = soon(other.mutex("job").lock()).await.unwrap();
    assert!(next.token().unwrap().0 > 0);
    soon(guard.lost()).await;
    assert_eq!(guard.state(), State::Lost);
    assert!(guard.release().await.is_err());
    assert_eq!(next.state(), State::Held);
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_blocker_vanished_without_a_message_looks_by_itself() {
    let file = File::new("queue");
    let (keeper, other) =
        (file.keeper(Duration::from_secs(2)).await, file.keeper(Duration::from_secs(2)).await);
    let _lost = keeper.mutex("job").lock().await.unwrap();
    let waiting = tokio::spawn(async move { other.mutex("job").lock().await.unwrap().token().unwrap() });
    until(|| file.count("lockkeeper_claims") == 2).await;
    let first = "DELETE FROM lockkeeper_claims WHERE place = (SELECT min(place) FROM lockkeeper_claims)";
    file.sql().execute(first, []).unwrap();
    soon(waiting).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_waiter_joins_again_at_once() {
    let file = File::new("queue");
    let (keeper, other) = (file.keeper(LONG_TTL).await, file.keeper(LONG_TTL).await);
    let guard = keeper.mutex("job").lock().await.unwrap();
    let lock = other.mutex("job");
    let waiting = tokio::spawn(async move { lock.lock().await.map(drop) });
    until(|| file.count("lockkeeper_claims") == 2).await;
    let waiter = keeper.inspect("job").await.unwrap()[0].claims[1].id.clone();
    assert!(keeper.evict("job", &waiter).await.unwrap());
    assert!(!keeper.evict("job", &waiter).await.unwrap());
    until(|| file.count("lockkeeper_claims") == 2).await;
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn another_boot_buries_every_claim_and_tokens_still_grow() {
    let file = File::new("queue");
    let keeper = file.keeper(LONG_TTL).await;
    let guard = keeper.mutex("job").lock().await.unwrap();
    let token = guard.token().unwrap();
    file.sql().execute("UPDATE lockkeeper_counter SET boot = 'an earlier one'", []).unwrap();
    let after = file.keeper(LONG_TTL).await;
    let next = after.mutex("job").try_lock().await.unwrap().expect("the claim of the earlier boot is dead");
    assert!(next.token().unwrap() > token);
    assert!(guard.release().await.is_err());
    next.release().await.unwrap();
}

#[tokio::test]
async fn tokens_grow_after_a_power_cut_and_when_the_clock_starts_behind() {
    let file = File::new("queue");
    let token = next_token(&file).await;
    // A power cut: the last writes are undone, and the machine has booted. The wall clock has moved on.
    file.sql().execute("UPDATE lockkeeper_counter SET boot = 'cut', horizon = 0, base = 0", []).unwrap();
    let after = next_token(&file).await;
    assert!(after > token);
    // A boot with a wall clock that is a year behind: the horizon keeps tokens growing.
    let ahead = "UPDATE lockkeeper_counter SET boot = 'behind', horizon = horizon + 31536000000000";
    file.sql().execute(ahead, []).unwrap();
    let horizon = "SELECT horizon FROM lockkeeper_counter";
    let horizon: i64 = file.sql().query_row(horizon, [], |row| row.get(0)).unwrap();
    assert!(next_token(&file).await.0 > horizon.unsigned_abs());
}

async fn next_token(file: &File) -> lockkeeper_core::Token {
    let keeper = file.keeper(LONG_TTL).await;
    let guard = keeper.mutex("job").lock().await.unwrap();
    let token = guard.token().unwrap();
    guard.release().await.unwrap();
    keeper.close().await;
    token
}

#[tokio::test]
async fn the_horizon_is_above_every_token_and_rarely_written() {
    let file = File::new("queue");
    let horizon = || -> i64 {
        file.sql().query_row("SELECT horizon FROM lockkeeper_counter", [], |row| row.get(0)).unwrap()
    };
    let first = next_token(&file).await;
    let before = horizon();
    let second = next_token(&file).await;
    assert!(first < second && second.0 <= before.unsigned_abs());
    assert_eq!(horizon(), before);
    file.sql().execute("UPDATE lockkeeper_counter SET horizon = 5", []).unwrap();
    assert!(next_token(&file).await.0 <= horizon().unsigned_abs());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_of_another_program_is_waited_for() {
    let file = File::new("queue");
    let keeper = file.keeper(STUCK).await;
    let shell = file.sql();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let waiting =
        tokio::spawn(async move { keeper.mutex("job").lock().await.map(|guard| guard.token().unwrap()) });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    shell.execute_batch("COMMIT").unwrap();
    soon(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn dropped_waits_leave_the_queue() {
    let file = File::new("queue");
    let keeper = file.keeper(LONG_TTL).await;
    let guard = keeper.mutex("job").lock().await.unwrap();
    for _ in 0..50 {
        let lock = keeper.mutex("job");
        let _ = tokio::time::timeout(Duration::from_micros(300), lock.lock()).await;
    }
    until(|| file.count("lockkeeper_claims") == 1).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn abandoned_claims_and_fifos_are_cleaned_up() {
    let file = File::new("queue");
    let ttl = Duration::from_millis(300);
    let mut process = file.holder(ttl);
    process.kill();
    let fifos = || {
        let names = std::fs::read_dir(file.directory()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains("-wake-")).count()
    };
    assert_eq!((fifos(), file.count("lockkeeper_claims")), (1, 1));
    tokio::time::sleep(ttl).await;
    // Its renewals clean up, so its hold must last however busy the machine is.
    let keeper = file.keeper(Duration::from_secs(3)).await;
    assert_eq!(fifos(), 1, "the dead process's is gone, ours is there");
    let _guard = keeper.mutex("something else").lock().await.unwrap();
    until(|| file.count("lockkeeper_claims WHERE lock = 'lockkeeper/job'") == 0).await;
    drop(_guard);
    keeper.close().await;
    assert_eq!(fifos(), 0);
}
