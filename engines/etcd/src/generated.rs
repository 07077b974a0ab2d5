//! The messages and calls of etcd's API that we use, made from `proto/etcd.proto`; that file says how.
//! Only etcd's driver is made by a tool.

#![allow(missing_docs, unreachable_pub, clippy::all)]

include!("generated/etcdserverpb.rs");
