//! A fence in etcd: a key beside the data, compared by the transaction that reads or writes.
//!
//! etcd compares values as bytes, so the fence holds the token with leading zeros ([`value`]). Make the fence key once
//! with `value(Token(0))`; then every access is one transaction, reads included:
//!
//! ```text
//! compare  value("stock/fence") < next("TOKEN")          that is: the fence is not larger than the token
//! success  put "stock/fence" value(TOKEN), and get or put "stock"
//! failure  get "stock/fence"                               stale: what it stands at
//! ```
//!
//! With `etcdctl`, for the token 7:
//!
//! ```text
//! $ etcdctl txn <<'END'
//! value("stock/fence") < "00000000000000000008"
//!
//! put stock/fence 00000000000000000007
//! get stock
//!
//! get stock/fence
//!
//! END
//! ```
//!
//! If the data lies in the same etcd as the lock, there is a way without a fence key: compare that the claim's own key
//! still has its create revision, which is the token, in the transaction that reads or writes.
//! There are no driver types here: the recipe is the same in every client.

use lockkeeper_core::Token;

/// What the fence key holds for a token.
///
/// ```
/// # use lockkeeper_core::Token;
/// # use lockkeeper_fencing::etcd;
/// assert_eq!(etcd::value(Token(7)), "00000000000000000007");
/// assert!(etcd::value(Token(9)) < etcd::value(Token(10)));
/// ```
pub fn value(token: Token) -> String {
    format!("{token:020}")
}

/// What the fence key's value must be smaller than for the token to pass.
pub fn next(token: Token) -> String {
    value(Token(token.0.saturating_add(1)))
}
