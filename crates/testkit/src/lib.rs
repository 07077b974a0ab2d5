//! Starts real servers on free ports of 127.0.0.1 with throw-away data, and stops them on drop.
//!
//! Every `start` returns only when the server answers, and panics with the tail of the server's log
//! when it does not within 60 s. A server never outlives the process which started it, not even when
//! that process is killed. Linux only.
//!
//! ```no_run
//! let redis = lockkeeper_testkit::Redis::start();
//! println!("{} answers", redis.url());
//! redis.kill();
//! redis.restart();
//! ```

mod certificates;
mod data;
mod error;
mod etcd;
mod etcd_tls;
mod http;
pub mod install;
mod mariadb;
mod pgbouncer;
mod placement;
mod port;
mod postgres;
mod process;
mod proxy;
mod redis;
mod redis_cluster;
mod redis_tls;
mod resp;
mod sentinel;
mod server;
mod spawner;
mod wait;
mod wall_clock;
mod zookeeper;
mod zookeeper_tls;

pub use etcd::Etcd;
pub use etcd_tls::EtcdTls;
pub use mariadb::MariaDb;
pub use pgbouncer::PgBouncer;
pub use placement::{Placed, Placement};
pub use postgres::Postgres;
pub use proxy::Proxy;
pub use redis::Redis;
pub use redis_cluster::RedisCluster;
pub use redis_tls::RedisTls;
pub use sentinel::Sentinel;
pub use server::Server;
pub use wait::wait_until;
pub use wall_clock::WallClock;
pub use zookeeper::ZooKeeper;
pub use zookeeper_tls::ZooKeeperTls;
