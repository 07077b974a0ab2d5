//! Uncontended lock and release against the floor (two bare transactions) and etcd's own Lock and Unlock calls, all
//! in one run on one server; ratios are medians of the rounds, with their quartiles: `cargo run --release -p lockkeeper-etcd --example etcd_floor`.
//! With a number of tasks as its argument, only with so many.

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

/// How long everybody's turn is, and how many turns each has in a round. A disk that hangs now and then hits whoever is at
/// it; with one task, where each write is waited for, short turns let it hit all of them alike.
const SHORT_TURNS: (Duration, u32) = (Duration::from_millis(20), 15);
const LONG_TURNS: (Duration, u32) = (Duration::from_millis(250), 1);
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
    let only = std::env::args().nth(1).map(|tasks| tasks.parse().expect("a number of tasks"));
    for tasks in only.map_or(vec![1, 64], |tasks| vec![tasks]) {
        let (turn, turns) = if tasks == 1 { SHORT_TURNS } else { LONG_TURNS };
        let (mut floor, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let mut totals = [Total::default(); 3];
            for _ in 0..turns {
                totals[0].add(tasks, |task| bare_pairs(channel.clone(), lease, task, turn)).await;
                totals[1].add(tasks, |task| our_pairs(keeper.clone(), task, turn)).await;
                totals[2].add(tasks, |task| lock_calls(channel.clone(), lease, task, turn)).await;
            }
            let [floor_rate, our_rate, their_rate] = totals.map(Total::rate);
            floor.push(floor_rate);
            ours.push(our_rate);
            theirs.push(their_rate);
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

/// Pairs and the time they took.
#[derive(Clone, Copy, Default)]
struct Total {
    pairs: u64,
    seconds: f64,
}

impl Total {
    /// One turn of so many tasks at once.
    async fn add<F: Future<Output = u64> + Send + 'static>(
        &mut self,
        tasks: usize,
        pairs: impl Fn(usize) -> F,
    ) {
        let begun = Instant::now();
        let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(pairs(task))).collect();
        for task in running {
            self.pairs += task.await.expect("no panic");
        }
        self.seconds += begun.elapsed().as_secs_f64();
    }

    fn rate(self) -> f64 {
        self.pairs as f64 / self.seconds
    }
}

async fn our_pairs(keeper: Keeper, task: usize, turn: Duration) -> u64 {
    let (begun, mutex) = (Instant::now(), keeper.mutex(format!("speed/{task}")));
    let mut pairs = 0;
    while begun.elapsed() < turn {
        mutex.lock().await.expect("a grant").release().await.expect("a release");
        pairs += 1;
    }
    pairs
}

/// Create if absent, and delete if unchanged: what any lock on etcd costs at least.
async fn bare_pairs(channel: Channel, lease: i64, task: usize, turn: Duration) -> u64 {
    let (begun, mut kv) = (Instant::now(), KvClient::new(channel));
    let key = format!("floor/{task}").into_bytes();
    let put = PutRequest { key: key.clone(), lease, ..PutRequest::default() };
    let delete = DeleteRangeRequest { key: key.clone() };
    let mut pairs = 0;
    while begun.elapsed() < turn {
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
async fn lock_calls(channel: Channel, lease: i64, task: usize, turn: Duration) -> u64 {
    let begun = Instant::now();
    let mut client = tonic::client::Grpc::new(channel);
    let name = format!("calls/{task}").into_bytes();
    let mut pairs = 0;
    while begun.elapsed() < turn {
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
