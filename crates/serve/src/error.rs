//! Refusals: one shape for all, with a stable code, a sentence, and what to do.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use lockkeeper_core::{Error, LostReason};
use serde::Serialize;
use utoipa::ToSchema;

/// A refusal, as `application/problem+json`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// The HTTP status.
    pub(crate) status: u16,
    /// What programs look at; it never changes its meaning.
    #[schema(example = "busy")]
    pub(crate) code: &'static str,
    /// What is wrong, and what to do about it.
    pub(crate) detail: String,
    /// Of `lost` and `session_ended`: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<&'static str>,
    /// Of `busy`: how the locks stand that were not granted. Empty in later replies to the same key, and missing if the wait was
    /// given up because its connection was closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) busy: Option<Vec<Busy>>,
    /// Of `busy`: how long the server kept the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waited_ms: Option<u64>,
}

/// A lock that is in use.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct Busy {
    /// Its name.
    pub(crate) name: String,
    /// Who holds it.
    pub(crate) holders: Vec<String>,
    /// At which place of the queue a claim would stand that joins now; the first place is 1.
    pub(crate) place: usize,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        let (status, detail) = (status.as_u16(), detail.into());
        Self { status, code, detail, reason: None, busy: None, waited_ms: None }
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", detail)
    }

    /// The refusal of a key that was used for another request of this kind.
    pub(crate) fn key_reused(kind: &str) -> Self {
        let detail =
            format!("the Idempotency-Key was used for another {kind} of this client: choose a new one");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "key_reused", detail)
    }

    pub(crate) fn because(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Whether the same request may succeed later.
    fn is_temporary(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

/// The word for a loss, in replies and events.
pub(crate) fn reason(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Expired => "expired",
        LostReason::Gone => "gone",
        LostReason::LeaseEnded => "lease_ended",
        LostReason::Closed => "server_ended",
        _ => "lost",
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let detail = error.to_string();
        let (status, code) = match &error {
            Error::Lost { reason: why, .. } => {
                return Self::new(StatusCode::GONE, "lost", detail).because(reason(*why));
            }
            Error::Mismatch { .. } => (StatusCode::CONFLICT, "mismatch"),
            Error::Invalid(_) => (StatusCode::BAD_REQUEST, "invalid"),
            Error::Unsupported { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "unsupported"),
            Error::Engine { temporary: true, .. } => (StatusCode::SERVICE_UNAVAILABLE, "engine_unavailable"),
            _ => (StatusCode::BAD_GATEWAY, "engine_failed"),
        };
        if status.is_server_error() {
            // What a driver says may name hosts and users; the log has it.
            tracing::warn!(error = %detail, "the engine failed a request");
            let detail = "the engine did not do its part: try again, or look at the server's log";
            return Self::new(status, code, detail);
        }
        Self::new(status, code, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.is_temporary() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
