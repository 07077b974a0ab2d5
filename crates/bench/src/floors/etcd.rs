//! The floor of etcd: create a key if it is absent, delete it if it is unchanged, each a transaction.

use super::Pairs;
use crate::Result;
use futures_util::future::BoxFuture;
use lockkeeper_core::engine::Address;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// Longer than any run.
const LEASE_SECONDS: i64 = 600;
const TXN: &str = "/etcdserverpb.KV/Txn";
const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
/// The comparison is with the revision of the key's creation.
const TARGET_CREATE: i32 = 1;

/// One connection and one lease for all locks.
pub(crate) struct TwoTransactions {
    channel: Channel,
    lease: i64,
    prefix: String,
}

impl TwoTransactions {
    pub(crate) async fn connect(address: &Address) -> Result<Self> {
        let host = address.hosts.first().ok_or("the URL names no host")?.with_port(2379);
        let channel = Endpoint::from_shared(format!("http://{host}"))?.tcp_nodelay(true).connect().await?;
        let request = LeaseGrantRequest { ttl: LEASE_SECONDS };
        let lease: LeaseGrantResponse = call(&channel, LEASE_GRANT, request).await?;
        let prefix = format!("lockkeeper-bench-floor/{:016x}", rand::random::<u64>());
        Ok(Self { channel, lease: lease.id, prefix })
    }

    /// Does something if the key was created at this revision, zero being never; the revision after it.
    async fn transaction(&self, key: &str, revision: i64, then: Operation) -> Result<i64> {
        let compare =
            Compare { target: TARGET_CREATE, key: key.as_bytes().to_vec(), create_revision: Some(revision) };
        let answer: TxnResponse =
            call(&self.channel, TXN, TxnRequest { compare: vec![compare], success: vec![then] }).await?;
        let header = answer.header.filter(|_| answer.succeeded);
        Ok(header.ok_or("somebody else changed the floor's key")?.revision)
    }
}

impl Pairs for TwoTransactions {
    fn pair(&self, lock: usize) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let key = format!("{}/{lock}", self.prefix);
            let bytes = key.as_bytes().to_vec();
            let put = Put { key: bytes.clone(), lease: self.lease };
            let created = self.transaction(&key, 0, Operation { put: Some(put), delete: None }).await?;
            let delete = Operation { put: None, delete: Some(Delete { key: bytes }) };
            self.transaction(&key, created, delete).await?;
            Ok(())
        })
    }
}

async fn call<Q, A>(channel: &Channel, path: &'static str, request: Q) -> Result<A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut client = Grpc::new(channel.clone());
    client.ready().await?;
    let codec = ProstCodec::<Q, A>::default();
    let path = PathAndQuery::from_static(path);
    Ok(client.unary(tonic::Request::new(request), path, codec).await?.into_inner())
}

// The few messages of etcd's protocol that are needed, with its field numbers.

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    id: i64,
}

#[derive(Clone, PartialEq, Message)]
struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Operation>,
}

/// Equal is etcd's default and needs no field.
#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    create_revision: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
    #[prost(message, optional, tag = "3")]
    delete: Option<Delete>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(int64, tag = "3")]
    lease: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(int64, tag = "3")]
    revision: i64,
}
