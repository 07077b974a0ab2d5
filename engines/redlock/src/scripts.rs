//! The scripts that every node runs, each behind the same prelude. Only the engines on Redis have scripts.

use lockkeeper_redis::parts::Script;
use std::sync::LazyLock;

macro_rules! script {
    ($name:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                include_str!("scripts/common.lua"),
                include_str!(concat!("scripts/", $name, ".lua"))
            ))
        })
    };
}

pub(crate) static CLAIMS: LazyLock<Script> = script!("claims");
pub(crate) static RAISE: LazyLock<Script> = script!("raise");
pub(crate) static KEEP: LazyLock<Script> = script!("keep");
pub(crate) static REGAIN: LazyLock<Script> = script!("regain");
pub(crate) static ASK: LazyLock<Script> = script!("ask");
pub(crate) static EVICT: LazyLock<Script> = script!("evict");
pub(crate) static WAIT: LazyLock<Script> = script!("wait");
pub(crate) static PASS: LazyLock<Script> = script!("pass");
pub(crate) static LIST: LazyLock<Script> = script!("list");
