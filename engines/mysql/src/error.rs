//! What the driver's errors mean for the caller, and which requests are sent again.

use lockkeeper_core::engine::{Clock, NoReply};
use lockkeeper_core::{Error, Result};
use rand::random_range;
use rustls::CertificateError;
use std::error::Error as _;
use std::time::Duration;

pub(crate) const ENGINE: &str = "mysql";

/// The error for a request that failed: temporary if the same request may succeed later.
pub(crate) fn failed(doing: &'static str, error: mysql_async::Error) -> Error {
    let temporary = match &error {
        mysql_async::Error::Io(_) | mysql_async::Error::Driver(_) => true,
        mysql_async::Error::Server(error) => is_temporary(error.code),
        mysql_async::Error::Other(_) | mysql_async::Error::Url(_) => false,
    };
    if temporary { Error::temporary(ENGINE, doing, error) } else { Error::permanent(ENGINE, doing, error) }
}

/// Whether the server or its resources are the reason, not the request.
fn is_temporary(code: u16) -> bool {
    const TOO_MANY_CONNECTIONS: u16 = 1040;
    const SHUTTING_DOWN: u16 = 1053;
    const TOO_MANY_OF_THIS_USER: u16 = 1203;
    /// Another keeper migrates it.
    const NO_PROCEDURE: u16 = 1305;
    const INTERRUPTED: u16 = 1317;
    const KILLED: u16 = 1927;
    const STATEMENT_TOO_LONG: u16 = 1969;
    let temporary = [
        TOO_MANY_CONNECTIONS,
        SHUTTING_DOWN,
        TOO_MANY_OF_THIS_USER,
        NO_PROCEDURE,
        INTERRUPTED,
        KILLED,
        STATEMENT_TOO_LONG,
    ];
    temporary.contains(&code) || is_collision(code)
}

/// Whether the server does not let this user in.
pub(crate) fn is_login_refused(error: &mysql_async::Error) -> bool {
    const ACCESS_DENIED: u16 = 1045;
    matches!(error, mysql_async::Error::Server(reply) if reply.code == ACCESS_DENIED)
}

/// A name for which the server's certificate is good, if it was refused for not having ours.
pub(crate) fn name_of(error: &mysql_async::Error) -> Option<String> {
    let mysql_async::Error::Io(error) = error else { return None };
    let error = match error {
        mysql_async::IoError::Io(error) => error.get_ref()?.downcast_ref::<rustls::Error>()?,
        mysql_async::IoError::Tls(error) => error.source()?.downcast_ref::<rustls::Error>()?,
    };
    let rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) = error
    else {
        return None;
    };
    // Each is written like DnsName("*.example.com") or IpAddress(127.0.0.1).
    let name = presented.iter().find_map(|name| {
        let (kind, name) = name.strip_suffix(')')?.split_once('(')?;
        ["DnsName", "IpAddress"].contains(&kind).then(|| name.trim_matches('"'))
    });
    name.map(|name| name.replace('*', "any"))
}

/// The error for a request without a reply in time.
pub(crate) fn no_reply(doing: &'static str, error: NoReply) -> Error {
    Error::temporary(ENGINE, doing, error)
}

/// The same for one whose limit is not that of its connection.
pub(crate) fn too_late(doing: &'static str, limit: Duration) -> Error {
    Error::temporary(ENGINE, doing, format!("no reply within {limit:?}"))
}

/// The error for a request on a connection that is closed.
pub(crate) fn closed(doing: &'static str) -> Error {
    Error::temporary(ENGINE, doing, "the connection is closed")
}

/// Whether two transactions waited for each other, or one waited for too long: the server has undone it, and it may be
/// sent again.
fn is_collision(code: u16) -> bool {
    const WAITED_TOO_LONG: u16 = 1205;
    const DEADLOCK: u16 = 1213;
    code == WAITED_TOO_LONG || code == DEADLOCK
}

/// Whether a statement failed by a collision.
pub(crate) fn collided<T>(outcome: &mysql_async::Result<T>) -> bool {
    matches!(outcome, Err(mysql_async::Error::Server(error)) if is_collision(error.code))
}

/// The same for an outcome that has been reported already.
pub(crate) fn has_collided<T>(outcome: &Result<T>) -> bool {
    let Err(Error::Engine { source, .. }) = outcome else { return false };
    matches!(source.downcast_ref(), Some(mysql_async::Error::Server(error)) if is_collision(error.code))
}

/// The collisions of one request so far.
#[derive(Default)]
pub(crate) struct Collisions(u32);

impl Collisions {
    /// After a collision: pauses, the longer the more there were. `false` if there were too many.
    pub(crate) async fn pause(&mut self) -> bool {
        const TRIES: u32 = 10;
        if self.0 == TRIES {
            return false;
        }
        self.0 += 1;
        Clock::Boot.sleep(Duration::from_micros(random_range(100..2000) * u64::from(self.0))).await;
        true
    }
}
