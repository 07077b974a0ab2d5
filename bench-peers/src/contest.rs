//! One contest: everybody takes turns on the same server, interleaved and repeated; ratios are within a repetition.

use lockkeeper_bench::Result;
use lockkeeper_bench::kit::{Count, Shape, Turns, fresh_name};
use lockkeeper_bench::scale::Scale;
use lockkeeper_bench::summary::{Sample, Subject, Summary, Unit, curve, figures};

/// Somebody's lock.
pub trait Contestant {
    fn name(&self) -> String;
    /// The one of ours to compare with; `None` if this is ours.
    fn rival(&self) -> Option<&'static str>;
    /// Takes turns on the lock with this name.
    fn take_turns(&mut self, place: &Place<'_>) -> Result<Vec<Turns>>;
}

/// Where and how turns are taken.
pub struct Place<'a> {
    pub url: &'a str,
    pub name: &'a str,
    pub shape: Shape,
    pub scale: &'a Scale,
}

impl Place<'_> {
    /// The server's host and port.
    pub fn host(&self) -> &str {
        let rest = self.url.split("://").nth(1).unwrap_or_default();
        rest.split(['/', '?']).next().unwrap_or_default()
    }
}

pub struct Contest<'a> {
    pub engine: &'a str,
    pub url: &'a str,
    pub shape: Shape,
    pub scale: &'a Scale,
}

struct Row {
    contestant: Box<dyn Contestant>,
    samples: Vec<Option<Sample>>,
    note: Option<String>,
}

impl Contest<'_> {
    pub fn run(&self, contestants: Vec<Box<dyn Contestant>>) -> Vec<Summary> {
        let mut rows: Vec<Row> = contestants
            .into_iter()
            .map(|contestant| Row { contestant, samples: Vec::new(), note: None })
            .collect();
        for repetition in 0..self.scale.repetitions {
            for row in &mut rows {
                let name = row.contestant.name();
                eprintln!("{repetition}: {} on {}, {name}", self.shape.workload().name(), self.engine);
                // What failed once would only fail again.
                let sample =
                    if row.note.is_none() { self.sample(&mut *row.contestant) } else { Err("".into()) };
                if let (Err(error), None) = (&sample, &row.note) {
                    row.note = Some(error.to_string());
                }
                row.samples.push(sample.ok());
            }
        }
        compare(&mut rows);
        rows.into_iter().map(|row| self.summary(row)).collect()
    }

    fn sample(&self, contestant: &mut dyn Contestant) -> Result<Sample> {
        let name = fresh_name("peers").replace('/', "-");
        let place = Place { url: self.url, name: &name, shape: self.shape, scale: self.scale };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let requests = runtime.block_on(Count::start(self.url))?;
        let placed = self.shape.workload().placement(self.scale).hold()?;
        let turns = contestant.take_turns(&place)?;
        drop(placed);
        let requests = runtime.block_on(requests.so_far())?;
        let all: u64 = turns.iter().map(|turns| turns.all).sum();
        let each = requests.map(|requests| requests / all.max(1) as f64);
        Ok(self.shape.sample(&turns).with_some("requests/pair", Unit::Ratio, each))
    }

    fn summary(&self, row: Row) -> Summary {
        let samples: Vec<Sample> = row.samples.into_iter().flatten().collect();
        let (size, size_number) = self.shape.size();
        let (name, is_ours) = (row.contestant.name(), row.contestant.rival().is_none());
        // Two libraries of one name may lock on different engines.
        let name = if is_ours { format!("lockkeeper {name}") } else { format!("{name} ({})", self.engine) };
        Summary {
            workload: self.shape.workload().name().into(),
            size,
            size_number,
            subject: Subject { name, engine: self.engine.into(), is_floor: false },
            runs: samples.len(),
            figures: figures(&samples),
            curve: curve(&samples),
            note: row.note,
        }
    }
}

/// Adds to everybody else's run how many times as many turns ours took in the same repetition.
fn compare(rows: &mut [Row]) {
    for index in 0..rows.len() {
        let Some(rival) = rows[index].contestant.rival() else { continue };
        let Some(ours) = rows.iter().position(|row| row.contestant.name() == rival) else { continue };
        for repetition in 0..rows[index].samples.len() {
            let rate =
                |row: &Row| row.samples.get(repetition)?.as_ref()?.metrics.first().map(|rate| rate.value);
            let ratio = rate(&rows[ours]).zip(rate(&rows[index]).filter(|rate| *rate > 0.0));
            if let Some(sample) = &mut rows[index].samples[repetition] {
                let ratio = ratio.map(|(ours, theirs)| ours / theirs);
                *sample = std::mem::take(sample).with_some("lockkeeper is ×", Unit::Ratio, ratio);
            }
        }
    }
}
