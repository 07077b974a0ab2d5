//! Scripts, run by their hash, and sent in full when a server does not have them.

use crate::reply;
use redis::{Cmd, ToRedisArgs, Value};

/// A script that lives in a `.lua` file.
#[derive(Debug)]
pub struct Lua {
    code: String,
    hash: String,
    /// The words that run it by its hash, as they are sent.
    by_hash: Vec<u8>,
}

impl Lua {
    /// A script made of these parts, one after the other.
    pub fn new(parts: &[&str]) -> Self {
        let code = parts.concat();
        let hash = redis::Script::new(&code).get_hash().to_owned();
        let mut by_hash = Vec::new();
        add_word(&mut by_hash, &["EVALSHA"]);
        add_word(&mut by_hash, &[&hash]);
        Self { code, hash, by_hash }
    }
}

/// One run of a script. What it costs us is mostly to write it, so its words are written once, as they are sent.
#[derive(Debug)]
pub struct Request {
    lua: &'static Lua,
    /// The number of keys, the keys and the arguments.
    words: Vec<u8>,
    count: usize,
    /// The connection it may be sent on, if not on any.
    pub(crate) only_on: Option<u64>,
}

/// Room for what is said of the length of a word.
const AROUND_WORD: usize = 8;

impl Request {
    /// A run of the script on these keys, which all live in one slot.
    pub fn new<K: AsRef<str>>(lua: &'static Lua, keys: &[K]) -> Self {
        let mut request = Self::of(lua, keys.len(), 8, 512);
        for key in keys {
            request.word(&[key]);
        }
        request
    }

    /// A run of the script on so many keys, which [`word`](Self::word) adds first; all together have about so many bytes.
    pub(crate) fn of(lua: &'static Lua, keys: usize, arguments: usize, bytes: usize) -> Self {
        let words = Vec::with_capacity(bytes + AROUND_WORD * (1 + keys + arguments));
        let mut request = Self { lua, words, count: 0, only_on: None };
        request.number(keys as u64);
        request
    }

    /// Adds a key or an argument made of these pieces.
    pub(crate) fn word<P: AsRef<str>>(&mut self, pieces: &[P]) -> &mut Self {
        add_word(&mut self.words, pieces);
        self.count += 1;
        self
    }

    /// Adds a number.
    pub(crate) fn number(&mut self, number: u64) -> &mut Self {
        self.bytes(Digits::of(number).bytes())
    }

    fn bytes(&mut self, word: &[u8]) -> &mut Self {
        add_length(&mut self.words, b'$', word.len());
        self.words.extend_from_slice(word);
        self.words.extend_from_slice(END);
        self.count += 1;
        self
    }

    /// With one more argument.
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        for word in argument.to_redis_args() {
            self.bytes(&word);
        }
        self
    }

    /// The slot of its keys, in a cluster.
    pub(crate) fn slot(&self) -> u16 {
        self.words().nth(1).map_or(0, |key| crate::keys::slot(&key))
    }

    /// Writes it as it is sent.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.reserve(AROUND_WORD + self.lua.by_hash.len() + self.words.len());
        add_length(out, b'*', 2 + self.count);
        out.extend_from_slice(&self.lua.by_hash);
        out.extend_from_slice(&self.words);
    }

    /// It as a command of the driver.
    pub(crate) fn command(&self) -> Cmd {
        self.command_of("EVALSHA", &self.lua.hash)
    }

    /// The same run with the script's text, which makes the server remember it.
    pub(crate) fn in_full(&self) -> Cmd {
        self.command_of("EVAL", &self.lua.code)
    }

    fn command_of(&self, verb: &str, script: &str) -> Cmd {
        let mut command = redis::cmd(verb);
        command.arg(script);
        for word in self.words() {
            command.arg(word);
        }
        command
    }

    /// The words, which are written as a server writes its replies.
    fn words(&self) -> impl Iterator<Item = Vec<u8>> {
        let mut rest = self.words.as_slice();
        std::iter::from_fn(move || match reply::first(rest) {
            Ok(Some((Value::BulkString(word), length))) => {
                rest = &rest[length..];
                Some(word)
            }
            _ => None,
        })
    }
}

const END: &[u8] = b"\r\n";

fn add_word<P: AsRef<str>>(out: &mut Vec<u8>, pieces: &[P]) {
    add_length(out, b'$', pieces.iter().map(|piece| piece.as_ref().len()).sum());
    for piece in pieces {
        out.extend_from_slice(piece.as_ref().as_bytes());
    }
    out.extend_from_slice(END);
}

fn add_length(out: &mut Vec<u8>, kind: u8, length: usize) {
    out.push(kind);
    match u8::try_from(length) {
        Ok(digit @ 0..10) => out.push(b'0' + digit),
        _ => out.extend_from_slice(Digits::of(length as u64).bytes()),
    }
    out.extend_from_slice(END);
}

/// A number in digits, without memory of its own.
struct Digits {
    digits: [u8; 20],
    from: usize,
}

impl Digits {
    fn of(mut number: u64) -> Self {
        let mut digits = [0; 20];
        let mut from = digits.len();
        loop {
            from -= 1;
            digits[from] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Self { digits, from };
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.digits[self.from..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::Arg;
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

    #[test]
    fn a_request_is_written_as_the_driver_writes_it() {
        let mut request = Request::of(&ECHO, 1, 3, 0);
        request.word(&["{a}", ":", "b"]).word(&[""]).number(0).number(u64::MAX);
        let request = request.arg("ü").arg(-7);
        let mut ours = Vec::new();
        request.write(&mut ours);
        assert_eq!(String::from_utf8(ours), String::from_utf8(request.command().get_packed_command()));
        assert_eq!(request.command().args_iter().count(), 9);
        assert_eq!(request.slot(), crate::keys::slot(b"{a}:b"));
    }
}
