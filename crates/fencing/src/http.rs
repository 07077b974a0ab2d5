//! The habit for HTTP: the token travels in a header of every request, and the service compares it.
//!
//! The client sends `Lockkeeper-Token: 1762473600123456` with **every** request about what the lock protects, `GET`
//! included. The service keeps a [`Fence`](crate::Fence) per resource, where the resource is (the same row, the same
//! transaction), and answers `409 Conflict` with the largest token in the same header when the request's is smaller,
//! `428 Precondition Required` when a resource that is always fenced gets none, `400 Bad Request` when it is no number.

use lockkeeper_core::Token;

/// The header's name.
pub const HEADER: &str = "Lockkeeper-Token";

/// The status for a stale token: 409 Conflict.
pub const STALE: u16 = 409;

/// The status for a missing token: 428 Precondition Required.
pub const MISSING: u16 = 428;

/// The header's value for a token.
///
/// ```
/// # use lockkeeper_core::Token;
/// # use lockkeeper_fencing::http;
/// assert_eq!(http::parse(&http::value(Token(42))), Ok(Token(42)));
/// ```
pub fn value(token: Token) -> String {
    token.to_string()
}

/// Reads the header's value: decimal digits and nothing else.
///
/// # Errors
/// [`BadToken`] for anything else; never a guess, for a token that is read too large would lock everybody out.
pub fn parse(value: &str) -> Result<Token, BadToken> {
    let plain = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse().ok().filter(|_| plain).map(Token).ok_or_else(|| BadToken(value.chars().take(64).collect()))
}

/// A header that is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("bad {HEADER} {0:?}: expected a decimal number")]
pub struct BadToken(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_are_tokens() {
        assert_eq!(parse("1762473600123456"), Ok(Token(1_762_473_600_123_456)));
        for bad in ["", " 1", "+1", "-1", "1e3", "0x1", "99999999999999999999", "1, 2"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
