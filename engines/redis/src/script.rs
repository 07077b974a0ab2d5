//! A Lua script and one call of it. Only Redis runs scripts by their hash.

use crate::keys;
use redis::{Arg, Cmd, ToRedisArgs};

/// A script, known to the server by its hash.
#[derive(Debug)]
pub struct Script {
    code: String,
    hash: String,
}

impl Script {
    /// A script of this text.
    pub fn new(code: impl Into<String>) -> Self {
        let code = code.into();
        let hash = redis::Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }

    /// A call of it on these keys, which all live in one slot of a Cluster.
    pub fn call<K: AsRef<str>>(&'static self, keys: &[K]) -> Call {
        let mut command = Cmd::with_capacity(12, 512);
        command.arg("EVALSHA").arg(&self.hash).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        Call { script: self, command }
    }
}

/// One call of a script.
#[derive(Debug, Clone)]
pub struct Call {
    script: &'static Script,
    command: Cmd,
}

impl Call {
    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        self.command.arg(argument);
        self
    }

    /// The command that calls it by its hash.
    pub(crate) fn command(&self) -> &Cmd {
        &self.command
    }

    /// The same call with the script's text, which makes the server remember it.
    pub(crate) fn in_full(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(&self.script.code);
        for word in self.words().skip(2) {
            command.arg(word);
        }
        command
    }

    /// The slot of its keys in a Cluster.
    pub(crate) fn slot(&self) -> u16 {
        self.words().nth(3).map_or(0, keys::slot)
    }

    fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.command.args_iter().filter_map(|word| match word {
            Arg::Simple(word) => Some(word),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    static ECHO: LazyLock<Script> = LazyLock::new(|| Script::new("return ARGV[1]"));

    #[test]
    fn a_call_in_full_has_the_text_and_the_same_words() {
        let call = ECHO.call(&["{a}:b", "{a}:c"]).arg("x").arg(7);
        let full = String::from_utf8(call.in_full().get_packed_command()).unwrap();
        let words: Vec<&str> = full.split("\r\n").skip(2).step_by(2).collect();
        assert_eq!(words, ["EVAL", "return ARGV[1]", "2", "{a}:b", "{a}:c", "x", "7"]);
        assert_eq!(call.slot(), keys::slot("a"));
    }
}
