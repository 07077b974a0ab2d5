//! The hair-dryer sale: at midnight several servers sell a limited stock, with and without a lock.
//!
//! ```sh
//! cargo run --release -p flash-sale                                   # on files, no server needed
//! cargo run --release -p flash-sale -- --engine redis://127.0.0.1 --crash
//! ```

mod picture;
mod sale;
mod server;
mod shop;

use clap::{Parser, Subcommand, ValueEnum};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(about = "Several servers sell a limited stock at midnight, with and without a lock")]
struct Arguments {
    /// The engine to lock on (default: files in a directory of yours)
    #[arg(long, env = "LOCKKEEPER_URL")]
    engine: Option<String>,
    /// How many hair dryers there are
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    stock: u32,
    /// How many people want one
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=5000))]
    buyers: u32,
    /// How many servers (processes) serve them
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32))]
    servers: u32,
    /// Sell with the lock, without it, or first without and then with it
    #[arg(long, value_enum, default_value_t = Locking::Both)]
    lock: Locking,
    /// One server crashes just after its order was written, while it holds the lock
    #[arg(long)]
    crash: bool,
    /// Print the results for a program to read
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    part: Option<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Locking {
    With,
    Without,
    Both,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// One of the servers; started by the sale itself
    #[command(hide = true)]
    Serve(server::Task),
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.part {
        Some(Part::Serve(task)) => server::serve(task).await,
        None => hold_sales(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flash_sale: {error}");
            ExitCode::FAILURE
        }
    }
}

fn hold_sales(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let rounds: &[bool] = match arguments.lock {
        Locking::With => &[true],
        Locking::Without => &[false],
        Locking::Both => &[false, true],
    };
    let engine = arguments.engine.clone().unwrap_or_else(lockkeeper::default_url);
    for locked in rounds {
        let plan = sale::Plan {
            engine: engine.clone(),
            stock: arguments.stock,
            buyers: arguments.buyers,
            servers: arguments.servers,
            locked: *locked,
            crash: arguments.crash && *locked,
        };
        let outcome = sale::hold(&plan)?;
        if arguments.json {
            println!("{}", serde_json::to_string(&outcome)?);
        } else {
            print!("{}", picture::draw(&outcome));
        }
    }
    Ok(())
}
