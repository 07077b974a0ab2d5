//! Rust libraries, each used as its documentation shows; a lock and its release are a turn.

use crate::contest::{Contestant, Place};
use distributed_lock::{DistributedLock, LockHandle, LockProvider, PostgresLockProvider, RedisLockProvider};
use futures_util::future::BoxFuture;
use lockkeeper_bench::Result;
use lockkeeper_bench::kit::{Pairs, Shape, Threads, Turns, run, take_turns};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zookeeper_client as zk;

/// As lockkeeper's.
const TTL: Duration = Duration::from_secs(10);
/// Longer than any run.
const PATIENCE: Duration = Duration::from_secs(60);
const LEASE_SECONDS: i64 = 600;

/// What a client needs to know.
#[derive(Clone)]
pub struct Client {
    pub url: String,
    pub host: String,
    pub name: String,
    /// Whether others want the same lock.
    pub is_contended: bool,
}

type Connect = fn(Client) -> BoxFuture<'static, Result<Arc<dyn Pairs>>>;

struct Library {
    name: &'static str,
    rival: &'static str,
    connect: Connect,
}

pub fn library(name: &'static str, rival: &'static str, connect: Connect) -> Box<dyn Contestant> {
    Box::new(Library { name, rival, connect })
}

impl Contestant for Library {
    fn name(&self) -> String {
        self.name.into()
    }

    fn rival(&self) -> Option<&'static str> {
        Some(self.rival)
    }

    fn take_turns(&mut self, place: &Place<'_>) -> Result<Vec<Turns>> {
        in_process(place, self.connect)
    }
}

/// Turns of clients in this process, on threads as in the bench.
pub fn in_process<F>(place: &Place<'_>, connect: impl Fn(Client) -> F) -> Result<Vec<Turns>>
where
    F: Future<Output = Result<Arc<dyn Pairs>>>,
{
    let threads = if place.shape == Shape::Alone { Threads::One } else { Threads::Many };
    let client = Client {
        url: place.url.into(),
        host: place.host().into(),
        name: place.name.into(),
        is_contended: matches!(place.shape, Shape::Contended(_)),
    };
    let turns = take_turns(place.shape, || connect(client.clone()), place.scale.limit);
    run(threads, place.scale.patience, turns)
}

/// The lock of a task.
fn lock_name(name: &str, lock: usize) -> String {
    format!("{name}-{lock}")
}

struct Rslock(::rslock::LockManager, String);

pub fn rslock(client: Client) -> BoxFuture<'static, Result<Arc<dyn Pairs>>> {
    Box::pin(async move {
        let manager = ::rslock::LockManager::new(vec![format!("redis://{}", client.host)]);
        Ok(Arc::new(Rslock(manager, client.name)) as _)
    })
}

impl Pairs for Rslock {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let name = lock_name(&self.1, lock);
            self.0.acquire(name.as_bytes(), TTL).await?.release().await;
            Ok(())
        })
    }
}

/// distributed-lock has the same interface on every engine.
struct Distributed<P>(P, String);

impl<P: LockProvider + Send + Sync> Pairs for Distributed<P>
where
    P::Lock: Send + Sync,
{
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let lock = self.0.create_lock(&lock_name(&self.1, lock));
            // Without a time it does not wait on Redis.
            let handle = lock.acquire(Some(PATIENCE)).await?;
            Ok(handle.release().await?)
        })
    }
}

pub fn distributed_lock_redis(client: Client) -> BoxFuture<'static, Result<Arc<dyn Pairs>>> {
    Box::pin(async move {
        let provider = RedisLockProvider::new(format!("redis://{}", client.host)).await?;
        Ok(Arc::new(Distributed(provider, client.name)) as _)
    })
}

pub fn distributed_lock_postgres(client: Client) -> BoxFuture<'static, Result<Arc<dyn Pairs>>> {
    Box::pin(async move {
        let provider = PostgresLockProvider::new(client.url).await?;
        Ok(Arc::new(Distributed(provider, client.name)) as _)
    })
}

struct ZooKeeperClient(zk::Client, String);

pub fn zookeeper_client(client: Client) -> BoxFuture<'static, Result<Arc<dyn Pairs>>> {
    Box::pin(async move {
        let session = zk::Client::connect(&client.host).await?;
        Ok(Arc::new(ZooKeeperClient(session, client.name)) as _)
    })
}

impl Pairs for ZooKeeperClient {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let directory = format!("/{}", lock_name(&self.1, lock));
            let prefix = zk::LockPrefix::new_curator(&directory, "lock-")?;
            let acls = zk::Acls::anyone_all();
            let options = zk::LockOptions::new(acls)
                .with_ancestor_options(zk::CreateMode::Container.with_acls(zk::Acls::anyone_all()))?;
            // Its release is a delete in the background, which nobody can wait for.
            drop(self.0.lock(prefix, b"", options).await?);
            Ok(())
        })
    }
}

struct EtcdClient {
    client: ::etcd_client::Client,
    lease: i64,
    name: String,
}

pub fn etcd_client(client: Client) -> BoxFuture<'static, Result<Arc<dyn Pairs>>> {
    Box::pin(async move {
        let mut connection = ::etcd_client::Client::connect([client.host], None).await?;
        let lease = connection.lease_grant(LEASE_SECONDS, None).await?.id();
        Ok(Arc::new(EtcdClient { client: connection, lease, name: client.name }) as _)
    })
}

impl Pairs for EtcdClient {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let mut client = self.client.clone();
            let options = ::etcd_client::LockOptions::new().with_lease(self.lease);
            let held = client.lock(lock_name(&self.name, lock), Some(options)).await?;
            client.unlock(held.key()).await?;
            Ok(())
        })
    }
}

struct Sqlx(::sqlx::PgPool, String);

pub fn sqlx(client: Client) -> BoxFuture<'static, Result<Arc<dyn Pairs>>> {
    Box::pin(async move {
        // One connection is all that a client with one lock needs; otherwise sqlx's own default.
        let count = if client.is_contended { 1 } else { 10 };
        let pool = ::sqlx::postgres::PgPoolOptions::new().max_connections(count).connect(&client.url).await?;
        Ok(Arc::new(Sqlx(pool, client.name)) as _)
    })
}

impl Pairs for Sqlx {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let lock = ::sqlx::postgres::PgAdvisoryLock::new(lock_name(&self.1, lock));
            lock.acquire(self.0.acquire().await?).await?.release_now().await?;
            Ok(())
        })
    }
}

/// Files that stay open; a mutex each, since fd-lock wants its file for itself.
struct FdLock {
    directory: std::path::PathBuf,
    files: Mutex<std::collections::HashMap<usize, Arc<Mutex<::fd_lock::RwLock<std::fs::File>>>>>,
    is_contended: bool,
}

pub fn fd_lock(client: Client) -> BoxFuture<'static, Result<Arc<dyn Pairs>>> {
    Box::pin(async move {
        let directory = std::env::temp_dir().join(format!("lockkeeper-{}", client.name));
        std::fs::create_dir_all(&directory)?;
        let is_contended = client.is_contended;
        Ok(Arc::new(FdLock { directory, files: Mutex::default(), is_contended }) as _)
    })
}

impl FdLock {
    fn lock_and_release(&self, lock: usize) -> Result<()> {
        let known = self.files.lock().unwrap_or_else(PoisonError::into_inner).get(&lock).cloned();
        let file = match known {
            Some(file) => file,
            None => {
                let path = self.directory.join(lock.to_string());
                let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
                let file = Arc::new(Mutex::new(::fd_lock::RwLock::new(file)));
                self.files.lock().unwrap_or_else(PoisonError::into_inner).insert(lock, Arc::clone(&file));
                file
            }
        };
        drop(file.lock().unwrap_or_else(PoisonError::into_inner).write()?);
        Ok(())
    }
}

impl Drop for FdLock {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Pairs for FdLock {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // It blocks the thread while others hold.
            if self.is_contended {
                tokio::task::block_in_place(|| self.lock_and_release(lock))?;
            } else {
                self.lock_and_release(lock)?;
            }
            tokio::task::consume_budget().await;
            Ok(())
        })
    }
}
