//! Many tasks whose requests travel together, some of which go away on the way: for every engine that lets them.

use lockkeeper::Keeper;
use std::time::Duration;

/// Nothing is held or wanted any more, in the end.
pub(crate) async fn until_idle(keeper: &Keeper) {
    for _ in 0..3000 {
        if keeper.inspect("").await.expect("a look").is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("something is left: {:?}", keeper.inspect("").await);
}

/// Of a hundred tasks every other one goes away, this number of times, each time a bit later than the last.
pub(crate) async fn tasks_that_go_away_leave_nothing_behind(keeper: &Keeper, times: u32, later_by: Duration) {
    for round in 0..times {
        let tasks: Vec<_> = (0..100)
            .map(|task| {
                let lock = keeper.mutex(format!("left/{task}"));
                tokio::spawn(async move { lock.lock().await.expect("a lock").release().await })
            })
            .collect();
        tokio::time::sleep(later_by * round).await;
        for (number, task) in tasks.into_iter().enumerate() {
            if number % 2 == 0 {
                task.abort();
            } else {
                task.await.expect("a task").expect("a release");
            }
        }
    }
    until_idle(keeper).await;
}
