//! Errors of requests, and what they mean for locks.

use crate::jute::Garbled;
use lockkeeper_core::Error;

/// The name of this engine in errors.
pub(crate) const ENGINE: &str = "zookeeper";

/// Codes of the server that locks distinguish.
pub(crate) mod code {
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const NO_AUTH: i32 = -102;
    pub(crate) const BAD_VERSION: i32 = -103;
    pub(crate) const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
    pub(crate) const NODE_EXISTS: i32 = -110;
    pub(crate) const SESSION_EXPIRED: i32 = -112;
    pub(crate) const INVALID_ACL: i32 = -114;
    pub(crate) const AUTH_FAILED: i32 = -115;
    pub(crate) const BAD_ARGUMENTS: i32 = -8;
    pub(crate) const UNIMPLEMENTED: i32 = -6;
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    /// The server refused it; nothing has changed.
    #[error("{}", text_of(*.0))]
    Refused(i32),
    /// It was not sent.
    #[error("not connected: {0}")]
    NotSent(String),
    /// It was sent, and the reply is missing: it may or may not have been done.
    #[error("no reply: {0}")]
    Unknown(String),
    /// The session is over, with every node it had made.
    #[error("the session is over")]
    Expired,
    /// The server does not accept who we say we are.
    #[error("the server refused the authentication")]
    AuthFailed,
}

impl RequestError {
    /// As the error of a lock; finishes the sentence 'could not …'.
    pub(crate) fn into_error(self, doing: &'static str) -> Error {
        match self {
            Self::Refused(
                code::NO_AUTH
                | code::INVALID_ACL
                | code::AUTH_FAILED
                | code::BAD_ARGUMENTS
                | code::UNIMPLEMENTED
                | code::NO_CHILDREN_FOR_EPHEMERALS,
            )
            | Self::AuthFailed => Error::permanent(ENGINE, doing, self),
            passing => Error::temporary(ENGINE, doing, passing),
        }
    }
}

/// How often something is sent again that does no harm when it is done twice.
pub(crate) struct Retries(u32);

impl Retries {
    pub(crate) fn few() -> Self {
        Self(3)
    }

    /// Whether to try again after this error: the connection was lost, and another is made meanwhile.
    pub(crate) fn again_after(&mut self, error: &RequestError) -> bool {
        self.0 -= 1;
        self.0 > 0 && matches!(error, RequestError::NotSent(_) | RequestError::Unknown(_))
    }
}

impl From<Garbled> for RequestError {
    fn from(garbled: Garbled) -> Self {
        Self::Unknown(garbled.to_string())
    }
}

fn text_of(code: i32) -> String {
    let text = match code {
        code::NO_NODE => "the node does not exist",
        code::NO_AUTH => "not authorised: see the parameters 'auth' and 'acl'",
        code::BAD_VERSION => "the node has changed",
        code::NO_CHILDREN_FOR_EPHEMERALS => {
            "another client uses a part of the name as an ephemeral node, which cannot have children"
        }
        code::NODE_EXISTS => "the node exists",
        code::SESSION_EXPIRED => "the session has expired",
        code::INVALID_ACL => "the ACL is not valid: 'acl=creator' needs 'auth'",
        code::AUTH_FAILED => "the authentication failed",
        code::BAD_ARGUMENTS => "bad arguments: the name has characters that ZooKeeper does not allow",
        code::UNIMPLEMENTED => "the server is too old: ZooKeeper 3.6 or newer is needed",
        _ => return format!("the server replied with code {code}"),
    };
    text.to_owned()
}
