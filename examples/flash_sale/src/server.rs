//! One server: serves its buyers as soon as the doors open, each under the lock (or not).

use crate::shop::{Order, Shop};
use lockkeeper::Keeper;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// What a server is told when it is started.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Task {
    #[arg(long)]
    pub(crate) engine: String,
    #[arg(long)]
    pub(crate) folder: PathBuf,
    #[arg(long)]
    pub(crate) sale: String,
    #[arg(long)]
    pub(crate) number: u32,
    /// Its buyers are every n-th of all, beginning with its own number.
    #[arg(long)]
    pub(crate) servers: u32,
    #[arg(long)]
    pub(crate) buyers: u32,
    #[arg(long)]
    pub(crate) locked: bool,
    /// The server that writes the order of this number crashes.
    #[arg(long)]
    pub(crate) crash_at: Option<u32>,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// How long it takes to look up a price and print a label: long enough to be overtaken without a lock.
const WORK: Duration = Duration::from_millis(2);

/// Connects, says that it is ready, waits for midnight, and serves all its buyers at once.
pub(crate) async fn serve(task: Task) -> Outcome<()> {
    let connect = lockkeeper::Connect::to(&task.engine).holder(format!("server {}", task.number));
    let keeper = connect.connect().await?;
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;

    let mut buyers = tokio::task::JoinSet::new();
    for buyer in (task.number..task.buyers).step_by(task.servers as usize) {
        let (task, keeper) = (task.clone(), keeper.clone());
        buyers.spawn(async move { buy(&task, &keeper, buyer).await.map_err(|error| error.to_string()) });
    }
    while let Some(bought) = buyers.join_next().await {
        bought??;
    }
    keeper.close().await;
    Ok(())
}

/// The machine's clock, which all servers of the sale share.
fn now_ns() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

async fn buy(task: &Task, keeper: &Keeper, buyer: u32) -> Outcome<()> {
    let shop = Shop::at(&task.folder);
    let asked_at_ns = now_ns();
    let name = format!("sale/{}", task.sale);
    if task.locked && keeper.abilities().shared {
        // Looking at the shelf shares the lock with everybody who just looks.
        let looking = keeper.rwlock(&name).read().await?;
        let left = shop.stock()?;
        looking.release().await?;
        if left == 0 {
            return Ok(());
        }
    }
    if !task.locked {
        return sell(
            task,
            &shop,
            Order { buyer, server: task.number, token: 0, asked_at_ns, served_at_ns: 0 },
        )
        .await;
    }
    let guard = keeper.mutex(&name).lock().await?;
    let order = Order { buyer, server: task.number, token: guard.token()?.0, asked_at_ns, served_at_ns: 0 };
    // If the lock is lost, the sale is dropped before anybody else can be served.
    guard.protect(sell(task, &shop, order)).await??;
    guard.release().await?;
    Ok(())
}

async fn sell(task: &Task, shop: &Shop, mut order: Order) -> Outcome<()> {
    let left = shop.stock()?;
    if left == 0 {
        return Ok(());
    }
    order.served_at_ns = now_ns();
    tokio::time::sleep(WORK).await;
    shop.set_stock(left - 1)?;
    shop.write_order(&order)?;
    if task.crash_at.is_some_and(|number| shop.orders().is_ok_and(|orders| orders.len() as u32 == number)) {
        // No destructor, no release: as if the power had failed.
        std::process::abort();
    }
    Ok(())
}
