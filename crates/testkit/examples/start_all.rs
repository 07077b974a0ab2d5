//! Starts and stops every kind of server once and prints how long each took.

use std::time::Instant;

use lockkeeper_testkit::{Etcd, MariaDb, Postgres, Redis, RedisCluster, Sentinel, ZooKeeper};

fn main() {
    println!("{:<22}{:>9}{:>9}", "", "start ms", "stop ms");
    time("redis", Redis::start);
    time("5 redis", || Redis::start_many(5));
    time("redis with tls", Redis::start_tls);
    time("redis sentinel", Sentinel::start);
    time("redis cluster", RedisCluster::start);
    time("zookeeper", ZooKeeper::start);
    time("3 zookeeper", || ZooKeeper::ensemble(3));
    time("etcd", Etcd::start);
    time("3 etcd", || Etcd::cluster(3));
    time("3 etcd without fsync", || Etcd::cluster_with(3, &["--unsafe-no-fsync"]));
    time("mariadb", MariaDb::start);
    time("postgres", Postgres::start);
    let postgres = Postgres::start();
    time("postgres standby", || postgres.standby());
}

fn time<T>(name: &str, start: impl FnOnce() -> T) {
    let began = Instant::now();
    let started = start();
    let start_ms = began.elapsed().as_millis();
    let began = Instant::now();
    drop(started);
    println!("{name:<22}{start_ms:>9}{:>9}", began.elapsed().as_millis());
}
