//! What a comparison with other libraries needs of this bench: its servers, its loops, its counters.

pub use crate::counters::Count;
pub use crate::floors::Pairs;
pub use crate::runtime::{Threads, run};
pub use crate::servers::Servers;
pub use crate::target::{connect, fresh_name};
pub use crate::workload::contended::Turns;
pub use crate::workload::uncontended::Mutexes;

use crate::floors::repeat;
use crate::measure::{Latencies, Pace};
use crate::scale::Limit;
use crate::summary::Sample;
use crate::workload::{SHARES, contended, pairs_sample};
use crate::{Result, Workload};
use std::sync::Arc;
use tokio::task::JoinSet;

/// How clients meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// One client, one lock.
    Alone,
    /// One client with this number of tasks, each with a lock of its own.
    Spread(usize),
    /// This number of clients on one lock.
    Contended(usize),
}

impl Shape {
    /// The workload of the bench that it is.
    pub fn workload(self) -> Workload {
        match self {
            Self::Alone => Workload::Uncontended,
            Self::Spread(_) => Workload::Spread,
            Self::Contended(_) => Workload::Contended,
        }
    }

    /// Its size in words and as a number.
    pub fn size(self) -> (String, usize) {
        match self {
            Self::Alone => (String::new(), 1),
            Self::Spread(tasks) => (format!("{tasks} locks"), tasks),
            Self::Contended(clients) => (format!("{clients} clients"), clients),
        }
    }

    /// The clients and tasks that take turns.
    pub fn contenders(self) -> usize {
        self.size().1
    }

    /// The figures of turns of which each is a lock and its release.
    pub fn sample(self, contenders: &[Turns]) -> Sample {
        if let Self::Contended(_) = self {
            return contended::sample(contenders, "turn ");
        }
        let mut latencies = Latencies::default();
        contenders.iter().for_each(|turns| latencies.merge(&turns.waits));
        let seconds = contenders.iter().map(|turns| turns.seconds).fold(0.0, f64::max);
        pairs_sample(&latencies, seconds, SHARES)
    }
}

/// Lets clients take turns until the limit is reached.
///
/// # Errors
/// The first one of a client.
pub async fn take_turns<F>(shape: Shape, connect: impl Fn() -> F, limit: Limit) -> Result<Vec<Turns>>
where
    F: Future<Output = Result<Arc<dyn Pairs>>>,
{
    let (count, is_shared) = (shape.contenders(), !matches!(shape, Shape::Contended(_)));
    let mut clients = vec![connect().await?];
    while !is_shared && clients.len() < count {
        clients.push(connect().await?);
    }
    for client in &clients {
        // Logins and scripts are no part of a turn.
        client.pair(0).await?;
    }
    let pace = Arc::new(Pace::start(limit));
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let pace = Arc::clone(&pace);
        let (client, lock) = if is_shared { (&clients[0], number) } else { (&clients[number], 0) };
        let client = Arc::clone(client);
        tasks.spawn(async move { repeat(&*client, lock, &pace).await });
    }
    let mut contenders = Vec::new();
    while let Some(task) = tasks.join_next().await {
        contenders.push(task??);
    }
    Ok(contenders)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn clients_take_turns_alone_spread_and_on_one_lock() {
        let limit = Limit { turns: 60, time: Duration::from_secs(20) };
        for (shape, first) in
            [(Shape::Alone, "pairs/s"), (Shape::Spread(3), "pairs/s"), (Shape::Contended(3), "hand-overs/s")]
        {
            let name = fresh_name("kit");
            let client = || async {
                let keeper = connect("memory:kit", None).await?;
                Ok(Arc::new(Mutexes::named(&keeper, &name, shape.contenders())) as Arc<dyn Pairs>)
            };
            let turns = run(Threads::Many, limit.time, take_turns(shape, client, limit)).unwrap();
            assert_eq!(turns.len(), shape.contenders());
            assert_eq!(turns.iter().map(|turns| turns.all).sum::<u64>(), limit.turns);
            let sample = shape.sample(&turns);
            assert_eq!(sample.metrics[0].name, first);
            assert!(sample.metrics[0].value > 0.0, "{shape:?}");
        }
    }
}
