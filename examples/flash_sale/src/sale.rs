//! One sale: starts the servers, opens the doors at midnight, and counts afterwards.

use crate::shop::{Order, Shop};
use serde::Serialize;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What to sell, to how many, through how many servers.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) engine: String,
    pub(crate) stock: u32,
    pub(crate) buyers: u32,
    pub(crate) servers: u32,
    pub(crate) locked: bool,
    pub(crate) crash: bool,
}

impl Plan {
    /// The order in the middle of the sale, whose server crashes.
    fn crash_at(&self) -> u32 {
        (self.stock / 2).max(1)
    }
}

/// What came of it.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) locked: bool,
    pub(crate) crashed: bool,
    pub(crate) stock: u32,
    pub(crate) buyers: u32,
    pub(crate) sold: u32,
    pub(crate) oversold: u32,
    /// Every sale had a larger fencing token than the one before.
    pub(crate) in_order: bool,
    /// From asking to being served, each sale's, in the order of the sales.
    pub(crate) waits_ms: Vec<f64>,
    /// From the crashed server's last order to the next one's turn.
    pub(crate) delay_after_crash_ms: Option<f64>,
}

type Answer<T> = Result<T, Box<dyn std::error::Error>>;

/// Holds one sale.
pub(crate) fn hold(plan: &Plan) -> Answer<Outcome> {
    let folder = tempfile::tempdir()?;
    let shop = Shop::at(folder.path());
    shop.set_stock(plan.stock)?;
    let mut servers = Vec::new();
    for number in 0..plan.servers {
        servers.push(start(plan, number, folder.path())?);
    }
    for server in &mut servers {
        let mut line = String::new();
        BufReader::new(server.stdout.take().ok_or("a server has no output")?).read_line(&mut line)?;
        if line.trim() != "ready" {
            return Err("a server did not start; its own message is above".into());
        }
    }
    // Midnight: the doors open at every server.
    for server in &mut servers {
        server.stdin.take().ok_or("a server has no input")?.write_all(b"open\n")?;
    }
    let mut crashed = 0;
    for server in &mut servers {
        crashed += u32::from(!server.wait()?.success());
    }
    if crashed != u32::from(plan.crash) {
        return Err(format!("{crashed} servers failed; their own messages are above").into());
    }
    Ok(count(plan, &shop.orders()?))
}

fn start(plan: &Plan, number: u32, folder: &Path) -> Answer<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").args(["--engine", &plan.engine]).arg("--folder").arg(folder);
    command.args(["--sale", &folder.file_name().unwrap_or_default().to_string_lossy()]);
    command.args(["--number", &number.to_string(), "--servers", &plan.servers.to_string()]);
    command.args(["--buyers", &plan.buyers.to_string()]);
    if plan.locked {
        command.arg("--locked");
    }
    if plan.crash {
        command.args(["--crash-at", &plan.crash_at().to_string()]);
    }
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

fn count(plan: &Plan, orders: &[Order]) -> Outcome {
    let sold = orders.len() as u32;
    let wait = |order: &Order| order.served_at_ns.saturating_sub(order.asked_at_ns) as f64 / 1e6;
    let delay = plan.crash.then_some(plan.crash_at() as usize).and_then(|at| {
        let (crashed, next) = (orders.get(at - 1)?, orders.get(at)?);
        Some(Duration::from_nanos(next.served_at_ns.saturating_sub(crashed.served_at_ns)).as_secs_f64() * 1e3)
    });
    Outcome {
        locked: plan.locked,
        crashed: plan.crash,
        stock: plan.stock,
        buyers: plan.buyers,
        sold,
        oversold: sold.saturating_sub(plan.stock),
        in_order: orders.windows(2).all(|pair| pair[0].token < pair[1].token),
        waits_ms: orders.iter().map(wait).collect(),
        delay_after_crash_ms: delay,
    }
}
