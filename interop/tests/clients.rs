//! lockkeeper beside the clients of other languages, which run as processes of their own: `scripts/interop-clients`.

#[path = "clients/curator.rs"]
mod curator;
#[path = "clients/etcd.rs"]
mod etcd;
#[path = "clients/peers.rs"]
mod peers;
#[path = "clients/redis_keys.rs"]
mod redis_keys;
#[path = "clients/redisson.rs"]
mod redisson;
