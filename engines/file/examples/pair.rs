//! Measures an uncontended lock and release: `cargo run --release -p lockkeeper-file --example pair -- DIR [PAIRS]`.

use lockkeeper_core::engine::Address;
use lockkeeper_core::{DEFAULT_TTL, Keeper};
use std::time::Instant;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("give a directory")?;
    let pairs: u32 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let engine = lockkeeper_file::connect(Address::parse(&format!("file:{directory}"))?, DEFAULT_TTL).await?;
    let keeper = Keeper::builder().build(engine)?;
    let mutex = keeper.mutex("pair");
    let mut samples = Vec::with_capacity(pairs as usize);
    for _ in 0..pairs {
        let start = Instant::now();
        mutex.lock().await?.release().await?;
        samples.push(start.elapsed());
    }
    samples.sort_unstable();
    let total: std::time::Duration = samples.iter().sum();
    let at = |part: f64| samples[((samples.len() - 1) as f64 * part) as usize];
    println!(
        "{pairs} pairs: mean {:?}, median {:?}, p99 {:?}, {:.0} per second",
        total / pairs,
        at(0.5),
        at(0.99),
        f64::from(pairs) / total.as_secs_f64()
    );
    Ok(())
}
