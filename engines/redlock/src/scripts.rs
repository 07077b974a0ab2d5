//! The scripts that every node runs.

use lockkeeper_redis::parts::Lua;
use std::sync::LazyLock;

macro_rules! script {
    ($name:literal) => {
        LazyLock::new(|| {
            Lua::new(&[include_str!("scripts/common.lua"), include_str!(concat!("scripts/", $name, ".lua"))])
        })
    };
}

pub(crate) static ATTEMPT: LazyLock<Lua> = script!("attempt");
pub(crate) static RAISE: LazyLock<Lua> = script!("raise");
pub(crate) static KEEP: LazyLock<Lua> = script!("keep");
pub(crate) static LEAVE: LazyLock<Lua> = script!("leave");
pub(crate) static EVICT: LazyLock<Lua> = script!("evict");
pub(crate) static WAIT: LazyLock<Lua> = script!("wait");
pub(crate) static PASS: LazyLock<Lua> = script!("pass");
pub(crate) static LIST: LazyLock<Lua> = script!("list");
