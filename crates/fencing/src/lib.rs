//! Makes a resource refuse stale fencing tokens, on reads and writes.
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod etcd;
mod fence;
pub mod file;
pub mod http;
pub mod optimistic;
pub mod redis;
pub mod sql;

pub use fence::{Fence, Refused, Stale};
