//! Uncontended lock and release against the floor (two bare transactions) and etcd's own Lock and Unlock calls, all
//! in one run on one server; ratios are medians of the rounds, with their quartiles: `cargo run --release -p lockkeeper-etcd --example etcd_floor`.

#[allow(dead_code)]
#[path = "../src/generated.rs"]
mod generated;

use generated::compare::{CompareResult, CompareTarget, TargetUnion};
use generated::kv_client::KvClient;
use generated::lease_client::LeaseClient;
use generated::request_op::Request;
use generated::{Compare, DeleteRangeRequest, LeaseGrantRequest, PutRequest, RequestOp, TxnRequest};
use lockkeeper::Keeper;
use lockkeeper_testkit::Etcd;
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};

const ROUND: Duration = Duration::from_millis(250);
const ROUNDS: usize = 24;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let server = Etcd::start();
    let keeper = lockkeeper::connect(server.url()).await.expect("a keeper");
    let endpoint = Endpoint::from_shared(server.url().replace("etcd://", "http://")).expect("an address");
    let channel = endpoint.connect().await.expect("a connection");
    let request = LeaseGrantRequest { ttl: 600 };
    let lease =
        LeaseClient::new(channel.clone()).lease_grant(request).await.expect("a lease").into_inner().id;
    for tasks in [1, 64] {
        let (mut floor, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        // In many short turns, so that a busy neighbour slows all of them.
        for _ in 0..ROUNDS {
            floor.push(rate(tasks, |task| bare_pairs(channel.clone(), lease, task)).await);
            ours.push(rate(tasks, |task| our_pairs(keeper.clone(), task)).await);
            theirs.push(rate(tasks, |task| lock_calls(channel.clone(), lease, task)).await);
        }
        println!("{tasks} tasks: lockkeeper {:.0} pairs/s", quartiles(ours.clone())[1]);
        for (name, others) in [("the floor", floor), ("Lock/Unlock", theirs)] {
            let [low, ratio, high] =
                quartiles(ours.iter().zip(&others).map(|(ours, other)| ours / other).collect());
            println!("  {ratio:.2} of {name} ({low:.2} to {high:.2}), {:.0} pairs/s", quartiles(others)[1]);
        }
    }
    keeper.close().await;
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

/// Pairs per second of so many tasks at once.
async fn rate<F: Future<Output = u64> + Send + 'static>(tasks: usize, pairs: impl Fn(usize) -> F) -> f64 {
    let begun = Instant::now();
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(pairs(task))).collect();
    let mut total = 0;
    for task in running {
        total += task.await.expect("no panic");
    }
    total as f64 / begun.elapsed().as_secs_f64()
}

async fn our_pairs(keeper: Keeper, task: usize) -> u64 {
    let (begun, mutex) = (Instant::now(), keeper.mutex(format!("speed/{task}")));
    let mut pairs = 0;
    while begun.elapsed() < ROUND {
        mutex.lock().await.expect("a grant").release().await.expect("a release");
        pairs += 1;
    }
    pairs
}

/// Create if absent, and delete if unchanged: what any lock on etcd costs at least.
async fn bare_pairs(channel: Channel, lease: i64, task: usize) -> u64 {
    let (begun, mut kv) = (Instant::now(), KvClient::new(channel));
    let key = format!("floor/{task}").into_bytes();
    let put = PutRequest { key: key.clone(), lease, ..PutRequest::default() };
    let delete = DeleteRangeRequest { key: key.clone() };
    let mut pairs = 0;
    while begun.elapsed() < ROUND {
        let created =
            kv.txn(txn(&key, 0, Request::RequestPut(put.clone()))).await.expect("an answer").into_inner();
        assert!(created.succeeded);
        let revision = created.header.expect("a header").revision;
        let request = txn(&key, revision, Request::RequestDeleteRange(delete.clone()));
        assert!(kv.txn(request).await.expect("an answer").into_inner().succeeded);
        pairs += 1;
    }
    pairs
}

fn txn(key: &[u8], revision: i64, then: Request) -> TxnRequest {
    let compare = Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Create.into(),
        key: key.to_vec(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        ..Compare::default()
    };
    TxnRequest { compare: vec![compare], success: vec![RequestOp { request: Some(then) }], failure: vec![] }
}

#[derive(Clone, PartialEq, prost::Message)]
struct LockRequest {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(int64, tag = "2")]
    lease: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LockResponse {
    #[prost(bytes = "vec", tag = "2")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnlockRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct UnlockResponse {}

/// The server's own lock service, which lockkeeper never uses: its grants can be dead (see the README).
async fn lock_calls(channel: Channel, lease: i64, task: usize) -> u64 {
    let begun = Instant::now();
    let mut client = tonic::client::Grpc::new(channel);
    let name = format!("calls/{task}").into_bytes();
    let mut pairs = 0;
    while begun.elapsed() < ROUND {
        let request = tonic::Request::new(LockRequest { name: name.clone(), lease });
        client.ready().await.expect("a connection");
        let path = tonic::codegen::http::uri::PathAndQuery::from_static("/v3lockpb.Lock/Lock");
        let codec = tonic_prost::ProstCodec::<LockRequest, LockResponse>::default();
        let key = client.unary(request, path, codec).await.expect("an answer").into_inner().key;
        let request = tonic::Request::new(UnlockRequest { key });
        client.ready().await.expect("a connection");
        let path = tonic::codegen::http::uri::PathAndQuery::from_static("/v3lockpb.Lock/Unlock");
        let codec = tonic_prost::ProstCodec::<UnlockRequest, UnlockResponse>::default();
        client.unary(request, path, codec).await.expect("an answer");
        pairs += 1;
    }
    pairs
}
