//! What the `…_floor` examples of the database engines share: pairs per second by turns, and hand-over times.

use lockkeeper_testkit::Placement;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const ROUND: Duration = Duration::from_millis(120);
const ROUNDS: usize = 25;
/// One task's round is cut into so many slices, the raw pairs and ours by turns, so that whatever else the machine does hits both.
/// (Many tasks would lose time at the ends of slices, where the last ones run alone.)
const SLICES: u32 = 12;
const HAND_OVERS: usize = 100;

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The command line: a server's URL, if not a new one, and the styles to measure.
pub(crate) struct Wishes {
    pub(crate) url: Option<String>,
    styles: Vec<String>,
}

impl Wishes {
    pub(crate) fn read() -> Self {
        let (urls, styles): (Vec<String>, Vec<String>) =
            std::env::args().skip(1).partition(|word| word.contains("://"));
        Self { url: urls.into_iter().next(), styles }
    }

    /// Whether this style is asked for; without any, all are.
    pub(crate) fn include(&self, style: &str) -> bool {
        self.styles.is_empty() || self.styles.iter().any(|asked| asked == style)
    }

    /// With how many tasks to measure, and where. With one, where the two sides of a connection run decides more than what is
    /// measured, so that is not left to the system if the server is our own.
    pub(crate) fn runs(&self) -> Vec<(usize, Placement)> {
        let alone = Placement::of_one_task(self.url.is_none());
        alone.iter().map(|&placement| (1, placement)).chain([(64, Placement::Free)]).collect()
    }
}

/// Pairs, and what they took: time, and this process's time on the processors.
#[derive(Clone, Copy, Default)]
struct Pairs {
    count: u64,
    time: Duration,
    processor: Duration,
}

impl Pairs {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.time += other.time;
        self.processor += other.processor;
    }

    /// How many a second.
    fn rate(self) -> f64 {
        self.count as f64 / self.time.as_secs_f64()
    }

    /// Microseconds of the processors for one.
    fn processor_micros(self) -> f64 {
        self.processor.as_secs_f64() * 1e6 / self.count as f64
    }
}

/// How long the threads of this process have been on the processors.
fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

/// The pairs of so many tasks, each running pairs one after the other.
async fn run<F>(
    tasks: usize,
    time: Duration,
    pair: impl Fn(usize) -> F + Clone + Send + Sync + 'static,
) -> Pairs
where
    F: Future<Output = ()> + Send,
{
    let (count, processor, start) = (Arc::new(AtomicU64::new(0)), processor_time(), Instant::now());
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let (pair, count) = (pair.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                while start.elapsed() < time {
                    pair(task).await;
                    count.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    for task in all {
        task.await.expect("a task");
    }
    let time = start.elapsed();
    Pairs { count: count.load(Relaxed), time, processor: processor_time() - processor }
}

/// The value below which so many quarters of the numbers are.
fn quartile(numbers: &[f64], quarters: usize) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * quarters / 4]
}

fn median(numbers: &[f64]) -> f64 {
    quartile(numbers, 2)
}

/// The raw pairs, ours, and the raw ones again, by turns. How far the raw ones are from themselves says what a ratio is worth.
pub(crate) async fn compare<F>(
    url: &str,
    style: &str,
    tasks: usize,
    placement: Placement,
    floor: impl Fn(usize) -> F + Clone + Send + Sync + 'static,
) -> Result<(), Failure>
where
    F: Future<Output = ()> + Send + 'static,
{
    let more = if style == "session" { "&connections=64" } else { "" };
    let keeper = lockkeeper::connect(format!("{url}?style={style}{more}")).await?;
    let own = keeper.clone();
    let pair = move |task| {
        let keeper = own.clone();
        async move {
            let guard = keeper.mutex(format!("floor/{task}")).lock().await.expect("a lock");
            guard.release().await.expect("a release");
        }
    };
    // Connections are opened before it counts.
    run(tasks, ROUND, floor.clone()).await;
    run(tasks, ROUND, pair.clone()).await;
    let placed = placement.hold()?;
    let (mut rounds, mut total) = (Vec::new(), [Pairs::default(); 3]);
    let slices = if tasks == 1 { SLICES } else { 1 };
    for _ in 0..ROUNDS {
        let mut round = [Pairs::default(); 3];
        for slice in 0..slices {
            // Each of the three has each place in turn.
            for place in 0..3 {
                let subject = (place + slice as usize) % 3;
                let pairs = match subject {
                    1 => run(tasks, ROUND / slices, pair.clone()).await,
                    _ => run(tasks, ROUND / slices, floor.clone()).await,
                };
                round[subject].add(pairs);
            }
        }
        total.iter_mut().zip(round).for_each(|(total, pairs)| total.add(pairs));
        rounds.push(round.map(Pairs::rate));
    }
    drop(placed);
    let all = |of: fn(&[f64; 3]) -> f64| rounds.iter().map(of).collect::<Vec<f64>>();
    let (ratios, control) = (all(|[raw, our, _]| our / raw), all(|[raw, _, again]| again / raw));
    println!(
        "{style:9} {tasks:3} task(s), {placement:8}: floor {:6.0} pairs/s ({:.0} µs of processor time), ours {:6.0} pairs/s ({:.0} µs), \
         ratio {:.2} ({ROUNDS} rounds, half of them within {:.2} to {:.2}; the floor against itself {:.2}, {:.2} to {:.2})",
        median(&all(|[raw, ..]| *raw)),
        total[0].processor_micros(),
        median(&all(|[_, our, _]| *our)),
        total[1].processor_micros(),
        median(&ratios),
        quartile(&ratios, 1),
        quartile(&ratios, 3),
        median(&control),
        quartile(&control, 1),
        quartile(&control, 3)
    );
    keeper.close().await;
    Ok(())
}

/// How long from a release until the next one holds, both in this process but on keepers of their own.
pub(crate) async fn hand_over(url: &str, style: &str) -> Result<(), Failure> {
    let url = format!("{url}?style={style}");
    let keepers = [lockkeeper::connect(&url).await?, lockkeeper::connect(&url).await?];
    let mut times = Vec::new();
    let mut guard = keepers[0].mutex("hand-over").lock().await?;
    for turn in 1..HAND_OVERS {
        let keeper = keepers[turn % 2].clone();
        let next = tokio::spawn(async move {
            let guard = keeper.mutex("hand-over").lock().await.expect("a lock");
            (Instant::now(), guard)
        });
        tokio::time::sleep(Duration::from_millis(4)).await;
        let released = Instant::now();
        guard.release().await?;
        let (held, after) = next.await?;
        guard = after;
        times.push((held - released).as_secs_f64() * 1000.0);
    }
    guard.release().await?;
    times.sort_by(f64::total_cmp);
    println!(
        "{style:9} hand-over: median {:.2} ms, 99th of 100 {:.2} ms",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
    Ok(())
}

const HOLD: &str = "LOCKKEEPER_FLOOR_HOLD";

/// In the process that is to be killed: takes the lock, says so, and stays. Elsewhere it does nothing.
pub(crate) async fn hold_if_asked() -> Result<(), Failure> {
    let Ok(url) = std::env::var(HOLD) else { return Ok(()) };
    let keeper = lockkeeper::connect(&url).await?;
    let _guard = keeper.mutex("killed").lock().await?;
    println!("held");
    std::future::pending().await
}

/// How long from the SIGKILL of the process that holds until one who waits in this process holds.
pub(crate) async fn killed(url: &str, style: &str) -> Result<(), Failure> {
    use std::io::BufRead;
    let url = format!("{url}?style={style}");
    let keeper = lockkeeper::connect(&url).await?;
    let mut times = Vec::new();
    for _ in 0..10 {
        let mut holder = std::process::Command::new(std::env::current_exe()?)
            .env(HOLD, &url)
            .stdout(std::process::Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = holder.stdout.take().ok_or("its output")?;
        std::io::BufReader::new(output).read_line(&mut line)?;
        let lock = keeper.mutex("killed");
        let next = tokio::spawn(async move { (lock.lock().await, Instant::now()) });
        tokio::time::sleep(Duration::from_millis(50)).await;
        let killed = Instant::now();
        holder.kill()?;
        let (guard, held) = next.await?;
        holder.wait()?;
        guard?.release().await?;
        times.push((held - killed).as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{style:9} kill -9 of the holder: the next one holds after {:.1} ms at the median, {:.1} ms at most",
        times[times.len() / 2],
        times[times.len() - 1]
    );
    Ok(())
}
