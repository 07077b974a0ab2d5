//! Locks on Redis: a fair queue or a plain lock, on one server, behind Sentinel or in a Cluster.

mod cluster;
mod config;
mod connection;
mod crowd;
mod durable;
mod failure;
mod fences;
mod keys;
mod lane;
mod line;
mod link;
mod looker;
mod lua;
mod plain;
mod queue;
mod reply;
mod shared;
mod target;
mod together;
mod view;
mod wake;

/// The parts that other engines on Redis servers are built of.
pub mod parts {
    pub use crate::config::{Greeting, time_limit};
    pub use crate::failure::failure;
    pub use crate::keys::PlainKeys;
    pub use crate::lane::scan;
    pub use crate::line::HolderLine;
    pub use crate::link::{Check, Dial, Ears, Link};
    pub use crate::looker::{Lookers, Patience};
    pub use crate::lua::{Lua, Request};
    pub use crate::target::{Sentinels, Spot, Target, spot};
    pub use crate::view::{integer, text};
}

use crate::config::{Config, ENGINE, Topology};
use crate::crowd::{Crowds, Places};
use crate::durable::Durable;
use crate::fences::Fences;
use crate::lane::{Lane, Lanes};
use crate::line::HolderLine;
use crate::link::Ears;
use crate::looker::Lookers;
use crate::plain::RedisPlain;
use crate::plain::short::AttemptAlone;
use crate::queue::RedisQueue;
use crate::queue::short::Tails;
use crate::shared::Shared;
use crate::together::Together;
use crate::wake::{Flights, Waiters};
use lockkeeper_core::address::Address;
use lockkeeper_core::{
    Abilities, ClaimId, CrashFrees, Engine, MIN_TTL, QueueEngine, RaceEngine, Result, background,
};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// What each style can do.
pub const STYLES: &[Abilities] = &[
    Abilities {
        engine: ENGINE,
        style: "queue",
        url: "redis://host:6379",
        fair: true,
        shared: true,
        permits: true,
        downgrade: true,
        push: true,
        across_processes: true,
        across_machines: true,
        token_survives_restart: true,
        crash_frees: CrashFrees::WithinTtl,
        min_ttl: MIN_TTL,
    },
    Abilities {
        engine: ENGINE,
        style: "plain",
        url: "redis://host:6379?style=plain",
        fair: false,
        shared: false,
        permits: false,
        downgrade: false,
        push: true,
        across_processes: true,
        across_machines: true,
        token_survives_restart: true,
        crash_frees: CrashFrees::WithinTtl,
        min_ttl: MIN_TTL,
    },
];

/// Connects to the servers that the address names.
///
/// Cancel safety: dropping the future closes what was opened.
///
/// # Errors
/// [`Error::Invalid`](lockkeeper_core::Error::Invalid) for an address that says nonsense,
/// [`Error::Engine`](lockkeeper_core::Error::Engine) when a server cannot be reached or is not a master.
pub async fn connect(address: Address, ttl: Duration) -> Result<Arc<dyn Engine>> {
    let config = Config::read(address)?;
    let time_limit = config::time_limit(ttl);
    let channel = format!("lockkeeper:{}", ClaimId::random());
    match config.style {
        "plain" => Ok(Arc::new(RaceEngine(Shared(open_plain(&config, time_limit, channel).await?)))),
        _ => Ok(Arc::new(QueueEngine(Shared(open_queue(&config, time_limit, channel).await?)))),
    }
}

/// What the ears speak to: made after them, and gone before them.
type Listener<T> = Arc<OnceLock<Weak<T>>>;

fn listener<T>(listener: &Listener<T>) -> Option<Arc<T>> {
    listener.get().and_then(Weak::upgrade)
}

async fn open_queue(config: &Config, time_limit: Duration, channel: String) -> Result<Arc<RedisQueue>> {
    let waiters: Arc<Waiters> = Arc::default();
    let (hearing, behind) = (Arc::clone(&waiters), Listener::<RedisQueue>::default());
    let looking = Arc::clone(&behind);
    let ears = Ears {
        channel: channel.clone(),
        heard: Box::new(move |message| queue::hear(&hearing, message)),
        back: Box::new(move || {
            if let Some(queue) = listener(&looking) {
                background::handle().spawn(async move { queue.look_at_all().await });
            }
        }),
    };
    let (lanes, durable) = open_lanes(config, time_limit, ears).await?;
    let is_cluster = matches!(config.topology, Topology::Cluster(_));
    let queue = Arc::new(RedisQueue {
        // A join whose task has gone needs no undoing: a leave that overtook it has left a mark that keeps it out.
        joins: if is_cluster { Together::never() } else { Together::down(&lanes, drop) },
        leaves: if is_cluster { Together::never() } else { Together::down(&lanes, drop) },
        lanes,
        waiters,
        channel: channel.into(),
        durable,
        is_cluster,
        crowds: Crowds::default(),
        places: Places::default(),
        tails: Tails::default(),
    });
    let _ = behind.set(Arc::downgrade(&queue));
    Ok(queue)
}

async fn open_plain(config: &Config, time_limit: Duration, channel: String) -> Result<Arc<RedisPlain>> {
    let behind = Listener::<RedisPlain>::default();
    let (hearing, missing) = (Arc::clone(&behind), Arc::clone(&behind));
    let ears = Ears {
        channel: channel.clone(),
        heard: Box::new(move |message| {
            if let Some(plain) = listener(&hearing) {
                plain.hear(message);
            }
        }),
        back: Box::new(move || {
            if let Some(plain) = listener(&missing) {
                plain.lookers.look_now();
            }
        }),
    };
    let (lanes, durable) = open_lanes(config, time_limit, ears).await?;
    let is_cluster = matches!(config.topology, Topology::Cluster(_));
    let undoing = Arc::clone(&behind);
    let undo = move |attempt: AttemptAlone| {
        if let Some(plain) = listener(&undoing) {
            plain.undo(attempt);
        }
    };
    let plain = Arc::new(RedisPlain {
        attempts: if is_cluster { Together::never() } else { Together::down(&lanes, undo) },
        leaves: if is_cluster { Together::never() } else { Together::down(&lanes, drop) },
        lanes,
        waiters: Arc::default(),
        lookers: Lookers::default(),
        flights: Flights::default(),
        channel,
        durable,
        is_cluster,
        crowds: Crowds::default(),
        line: HolderLine::default(),
        fences: Fences::default(),
    });
    let _ = behind.set(Arc::downgrade(&plain));
    Ok(plain)
}

async fn open_lanes(config: &Config, time_limit: Duration, ears: Ears) -> Result<(Lanes, Option<Durable>)> {
    let (lanes, spare) = Lanes::open(config, time_limit, Arc::new(ears))
        .await
        .map_err(|error| failure::failure(ENGINE, "connect", error))?;
    let durable = match spare {
        Some(Lane::One(link)) => Some(Durable::new(link, config.wait_replicas, time_limit)),
        _ => None,
    };
    Ok((lanes, durable))
}
