//! The scripts that every node runs.

use lockkeeper_redis::parts::Lua;
use std::sync::LazyLock;

macro_rules! script {
    ($($part:literal),*) => {
        LazyLock::new(|| Lua::new(&[$(include_str!(concat!("scripts/", $part, ".lua"))),*]))
    };
}

pub(crate) static ATTEMPT: LazyLock<Lua> = script!("common", "attempt");
pub(crate) static RAISE: LazyLock<Lua> = script!("common", "raise");
pub(crate) static KEEP: LazyLock<Lua> = script!("one_begin", "common", "keep", "one_end");
pub(crate) static LEAVE: LazyLock<Lua> = script!("common", "leave");
pub(crate) static EVICT: LazyLock<Lua> = script!("common", "evict");
pub(crate) static WAIT: LazyLock<Lua> = script!("common", "wait");
pub(crate) static PASS: LazyLock<Lua> = script!("common", "pass");
pub(crate) static LIST: LazyLock<Lua> = script!("common", "list");
