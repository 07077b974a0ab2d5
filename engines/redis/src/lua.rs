//! Scripts, run by their hash, and sent in full when a server does not have them.

use redis::{Arg, Cmd, RedisWrite as _};
use std::io::Write as _;

/// A script that lives in a `.lua` file.
#[derive(Debug)]
pub struct Lua {
    code: String,
    hash: String,
}

impl Lua {
    /// A script made of these parts, one after the other.
    pub fn new(parts: &[&str]) -> Self {
        let code = parts.concat();
        let hash = redis::Script::new(&code).get_hash().to_owned();
        Self { code, hash }
    }
}

/// One run of a script.
#[derive(Debug)]
pub struct Request {
    lua: &'static Lua,
    pub(crate) command: Cmd,
    /// The connection it may be sent on, if not on any.
    pub(crate) only_on: Option<u64>,
}

/// EVALSHA, the hash and the number of keys come before the keys.
const WORDS_BEFORE_KEYS: usize = 3;

impl Request {
    /// A run of the script on these keys, which all live in one slot.
    pub fn new<K: AsRef<str>>(lua: &'static Lua, keys: &[K]) -> Self {
        let mut command = Cmd::with_capacity(WORDS_BEFORE_KEYS + keys.len() + 8, 512);
        command.arg("EVALSHA").arg(&lua.hash).arg(keys.len());
        for key in keys {
            command.arg(key.as_ref());
        }
        Self { lua, command, only_on: None }
    }

    /// A run of the script on so many keys, which [`word`](Self::word) adds first; all together have about so many bytes.
    pub(crate) fn of(lua: &'static Lua, keys: usize, arguments: usize, bytes: usize) -> Self {
        let mut command = Cmd::with_capacity(WORDS_BEFORE_KEYS + keys + arguments, 64 + bytes);
        command.arg("EVALSHA").arg(&lua.hash).arg(keys);
        Self { lua, command, only_on: None }
    }

    /// Adds a key or an argument made of these pieces, written in place: they are most of what a request costs us.
    pub(crate) fn word<P: AsRef<str>>(&mut self, pieces: &[P]) -> &mut Self {
        let mut word = self.command.writer_for_next_arg();
        for piece in pieces {
            // What is written to memory cannot fail.
            let _ = word.write_all(piece.as_ref().as_bytes());
        }
        drop(word);
        self
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        self.command.arg(number);
        self
    }

    /// With one more argument.
    pub fn arg(mut self, argument: impl redis::ToRedisArgs) -> Self {
        self.command.arg(argument);
        self
    }

    /// The slot of its keys, in a cluster.
    pub(crate) fn slot(&self) -> u16 {
        match self.command.args_iter().nth(WORDS_BEFORE_KEYS) {
            Some(Arg::Simple(key)) => crate::keys::slot(key),
            _ => 0,
        }
    }

    /// The same run with the script's text, which makes the server remember it.
    pub(crate) fn in_full(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVAL").arg(&self.lua.code);
        for word in self.command.args_iter().skip(2) {
            if let Arg::Simple(word) = word {
                command.arg(word);
            }
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    static ECHO: LazyLock<Lua> = LazyLock::new(|| Lua::new(&["return ", "ARGV[1]"]));

    #[test]
    fn a_request_in_full_has_the_text_and_the_same_words() {
        let request = Request::new(&ECHO, &["a", "b"]).arg("x").arg(7);
        let words: Vec<Vec<u8>> = request
            .in_full()
            .args_iter()
            .map(|word| match word {
                Arg::Simple(word) => word.to_vec(),
                _ => Vec::new(),
            })
            .collect();
        let texts: Vec<&str> = words.iter().map(|word| std::str::from_utf8(word).unwrap()).collect();
        assert_eq!(texts, ["EVAL", "return ARGV[1]", "2", "a", "b", "x", "7"]);
    }
}
