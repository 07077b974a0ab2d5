//! A fleet of workers: an elected one plans the jobs, and each job is done by one of them.
//!
//! ```sh
//! for name in ann ben cho; do cargo run --release -p worker-fleet -- /tmp/fleet $name & done; wait
//! ```
//!
//! Kill any of them: if it was the leader, another one plans on; if it had a job, another one does it.

use clap::Parser;
use lockkeeper::Keeper;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Parser)]
#[command(about = "One worker of a fleet: plans the jobs if it leads, and does those that nobody else does")]
struct Arguments {
    /// The directory with the jobs, which all workers see
    directory: PathBuf,
    /// The worker's name, shown to operators
    name: String,
    /// The engine to lock on (default: files in a directory of yours)
    #[arg(long, env = "LOCKKEEPER_URL")]
    engine: Option<String>,
    /// How many jobs there are to plan
    #[arg(long, default_value_t = 20)]
    jobs: u32,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { directory, name, engine, jobs } = Arguments::parse();
    for part in ["todo", "done"] {
        fs::create_dir_all(directory.join(part))?;
    }
    let url = engine.unwrap_or_else(lockkeeper::default_url);
    let keeper = lockkeeper::Connect::to(url).holder(&name).connect().await?;
    tokio::select! {
        ended = lead(&keeper, &directory, &name, jobs) => ended?,
        ended = work(&keeper, &directory, &name, jobs) => ended?,
    }
    // What is dropped leaves its queue; this waits until it has.
    keeper.close().await;
    Ok(())
}

/// Campaigns, plans while it leads, and campaigns again after a loss. Never ends by itself.
async fn lead(keeper: &Keeper, directory: &Path, name: &str, jobs: u32) -> Result<()> {
    loop {
        let lead = keeper.election("fleet/leader").campaign().await?;
        println!("{name} leads with the token {}", lead.token()?);
        // Cancelled before anybody else can lead.
        if let Ok(planned) = lead.protect(plan(directory, name, jobs)).await {
            planned?;
            lead.lost().await;
        }
    }
}

/// Planning may be repeated: a job that is there, or done, is left alone.
async fn plan(directory: &Path, name: &str, jobs: u32) -> Result<()> {
    for job in 1..=jobs {
        let job = job.to_string();
        if !directory.join("done").join(&job).exists() && !directory.join("todo").join(&job).exists() {
            fs::write(directory.join("todo").join(&job), name)?;
            let mut log = fs::File::options().create(true).append(true).open(directory.join("planned"))?;
            writeln!(log, "{job} {name}")?;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Does jobs until all are done.
async fn work(keeper: &Keeper, directory: &Path, name: &str, jobs: u32) -> Result<()> {
    while fs::read_dir(directory.join("done"))?.count() < jobs as usize {
        for entry in fs::read_dir(directory.join("todo"))? {
            let path = entry?.path();
            let job = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let Some(guard) = keeper.mutex(format!("fleet/jobs/{job}")).try_lock().await? else { continue };
            // It may have been done between the look at the directory and the grant.
            if path.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
                fs::write(&path, name)?;
                fs::rename(&path, directory.join("done").join(&job))?;
            }
            guard.release().await?;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
