//! Measures how soon a waiter holds after the holder is killed:
//! `cargo run --release -p lockkeeper-file --example handover -- DIR [ROUNDS]`.

use lockkeeper_core::engine::Address;
use lockkeeper_core::{DEFAULT_TTL, Keeper};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("give a directory")?;
    let engine = lockkeeper_file::connect(Address::parse(&format!("file:{directory}"))?, DEFAULT_TTL).await?;
    let keeper = Keeper::builder().build(engine)?;
    match arguments.next().as_deref() {
        Some("hold") => hold(&keeper).await,
        rounds => measure(&keeper, &directory, rounds.unwrap_or("100").parse()?).await,
    }
}

async fn hold(keeper: &Keeper) -> Result<(), Failure> {
    let _guard = keeper.mutex("handover").lock().await?;
    println!("held");
    std::future::pending().await
}

async fn measure(keeper: &Keeper, directory: &str, rounds: usize) -> Result<(), Failure> {
    let mut samples = Vec::new();
    for _ in 0..rounds {
        let mut holder = Command::new(std::env::current_exe()?);
        let mut holder = holder.args([directory, "hold"]).stdout(Stdio::piped()).spawn()?;
        let stdout = holder.stdout.take().ok_or("no output")?;
        BufReader::new(stdout).read_line(&mut String::new())?;
        let waiter = tokio::spawn({
            let mutex = keeper.mutex("handover");
            async move { mutex.lock().await.map(|guard| (guard, Instant::now())) }
        });
        while keeper.inspect("handover").await?.first().is_none_or(|lock| lock.claims.len() < 2) {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        let killed_at = Instant::now();
        holder.kill()?;
        let (guard, held_at) = waiter.await??;
        samples.push(held_at - killed_at);
        guard.release().await?;
        holder.wait()?;
    }
    samples.sort_unstable();
    println!("{rounds} kills: median {:?}, worst {:?}", samples[rounds / 2], samples[rounds - 1]);
    Ok(())
}
