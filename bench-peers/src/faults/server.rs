//! A server of an engine, with a proxy between it and the holder.

use super::Fault;
use lockkeeper_bench::Result;
use lockkeeper_testkit::{Etcd, Postgres, Proxy, Redis, Server, ZooKeeper};
use std::net::{Ipv4Addr, SocketAddr};

enum Running {
    Redis(Redis),
    ZooKeeper(ZooKeeper),
    Etcd(Etcd),
    Postgres(Postgres),
}

pub struct Place {
    running: Running,
    /// In front of a server that stands alone.
    proxy: Option<Proxy>,
}

impl Place {
    /// Starts what the fault needs.
    pub fn start(engine: &str, fault: Fault) -> Result<Self> {
        let size = if fault == Fault::Leader { 3 } else { 1 };
        let running = match engine {
            // What its documentation has for data that must outlive the server.
            "redis" if fault == Fault::Restart => {
                Running::Redis(Redis::start_with(&["--appendonly", "yes", "--appendfsync", "always"]))
            }
            "redis" => Running::Redis(Redis::start()),
            "zookeeper" => Running::ZooKeeper(ZooKeeper::ensemble(size)),
            "etcd" => Running::Etcd(Etcd::cluster(size)),
            "postgres" => Running::Postgres(Postgres::start()),
            _ => return Err(format!("no faults for {engine}").into()),
        };
        let mut place = Self { running, proxy: None };
        if fault == Fault::Cut {
            place.proxy = Some(Proxy::start(SocketAddr::from((Ipv4Addr::LOCALHOST, place.server().port()))));
        }
        Ok(place)
    }

    /// As lockkeeper takes it.
    pub fn url(&self) -> String {
        match &self.running {
            Running::Redis(redis) => redis.url(),
            Running::ZooKeeper(ensemble) => ensemble.url(),
            Running::Etcd(cluster) => cluster.url(),
            Running::Postgres(postgres) => postgres.url(),
        }
    }

    /// The same through the proxy, if there is one.
    pub fn url_of_holder(&self) -> String {
        let port = |port: u16| format!("127.0.0.1:{port}");
        match &self.proxy {
            Some(proxy) => self.url().replace(&port(self.server().port()), &port(proxy.addr().port())),
            None => self.url(),
        }
    }

    fn server(&self) -> &Server {
        match &self.running {
            Running::Redis(redis) => redis,
            Running::ZooKeeper(ensemble) => &ensemble.servers()[0],
            Running::Etcd(cluster) => &cluster.servers()[0],
            Running::Postgres(postgres) => postgres,
        }
    }

    /// Lets the fault happen; that of the holder itself is none of the server's.
    pub fn hit(&self, fault: Fault) {
        match fault {
            Fault::Pause => {}
            Fault::Cut => self.proxy.iter().for_each(Proxy::cut),
            Fault::Restart | Fault::Forget => {
                self.server().kill();
                self.server().restart();
            }
            Fault::Leader => match &self.running {
                Running::ZooKeeper(ensemble) => {
                    ensemble.kill_leader();
                }
                Running::Etcd(cluster) => {
                    cluster.kill_leader();
                }
                _ => {}
            },
        }
    }

    /// Ends a cut.
    pub fn heal(&self) {
        self.proxy.iter().for_each(Proxy::heal);
    }
}
