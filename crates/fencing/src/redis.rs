//! A fence in Redis: a key beside the data, compared and raised by the script that reads or writes.
//!
//! The scripts' texts are for any client; keep the two keys on one node of a cluster with a hash tag, such as
//! `{stock}` and `{stock}:fence`. The fence must not expire before the data, nor be evicted: a lost fence lets a stale
//! token pass. Like all of Redis' data, it can go back in a failover that loses writes.

/// Reads a key: KEYS the data and the fence, ARGV the token. Answers `{1, value}` or `{0, largest token}`.
pub const GET: &str = include_str!("redis/get.lua");

/// Writes a key: KEYS the data and the fence, ARGV the token and the value. Answers `{1, 'OK'}` or `{0, largest token}`.
pub const SET: &str = include_str!("redis/set.lua");

#[cfg(feature = "redis")]
pub use with_redis::{get, set};

#[cfg(feature = "redis")]
mod with_redis {
    use crate::fence::{Refused, Stale};
    use lockkeeper_core::Token;
    use redis::{
        ConnectionLike, ErrorKind, FromRedisValue, RedisError, RedisResult, Script, ToRedisArgs, Value,
    };

    /// Reads a fenced key, whose fence is `KEY:fence`, and raises the fence. For the crate `redis`.
    ///
    /// # Errors
    /// [`Refused::Stale`] if a later holder has been here, [`Refused::Resource`] when Redis fails.
    pub fn get<T: FromRedisValue>(
        connection: &mut dyn ConnectionLike,
        key: &str,
        token: Token,
    ) -> Result<Option<T>, Refused<RedisError>> {
        let script = Script::new(super::GET);
        let answer = script.key(key).key(fence(key)).arg(token.0).invoke(connection);
        let value = passed(answer, token)?;
        let value = Option::<T>::from_redis_value(value).map_err(RedisError::from);
        value.map_err(Refused::Resource)
    }

    /// Writes a fenced key, whose fence is `KEY:fence`, and raises the fence. For the crate `redis`.
    ///
    /// # Errors
    /// [`Refused::Stale`] if a later holder has been here; then nothing is changed. [`Refused::Resource`] when Redis fails.
    pub fn set(
        connection: &mut dyn ConnectionLike,
        key: &str,
        token: Token,
        value: impl ToRedisArgs,
    ) -> Result<(), Refused<RedisError>> {
        let script = Script::new(super::SET);
        let answer = script.key(key).key(fence(key)).arg(token.0).arg(value).invoke(connection);
        passed(answer, token).map(drop)
    }

    fn fence(key: &str) -> String {
        format!("{key}:fence")
    }

    /// What the script answered, if it let us pass.
    fn passed(answer: RedisResult<(i64, Value)>, token: Token) -> Result<Value, Refused<RedisError>> {
        let (passed, value) = answer.map_err(Refused::Resource)?;
        if passed == 1 {
            return Ok(value);
        }
        let text = String::from_redis_value(value).map_err(|error| Refused::Resource(error.into()))?;
        let bad = || RedisError::from((ErrorKind::UnexpectedReturnType, "the fence holds no token"));
        let highest = text.parse().map(Token).map_err(|_| Refused::Resource(bad()))?;
        Err(Stale { token, highest }.into())
    }
}
