//! What every request is checked for before its handler runs: host, origin, token, body.

use crate::app::App;
use crate::error::Problem;
use crate::session::CLOCK;
use crate::tokens::{Caller, Right};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use lockkeeper_core::engine::Moment;
use serde::de::DeserializeOwned;
use std::net::IpAddr;

/// When a request arrived.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived(pub(crate) Moment);

/// Notes when the request arrived, and refuses one that a page of another origin may have sent.
pub(crate) async fn check(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let arrived = CLOCK.now();
    if let Err(problem) = check_host(&app, &request).and_then(|()| check_origin(&request)) {
        return problem.into_response();
    }
    request.extensions_mut().insert(Arrived(arrived));
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(header::HeaderValue::from_static("no-store"));
    response
}

/// The host that the client believes it talks to, without the port. HTTP/2 has it in the URI.
fn host_of(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .or_else(|| uri.authority().map(|a| a.as_str()))?;
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    Some(without_port.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase())
}

/// A page of another site may have its name resolve to this machine, and so talk to a server on loopback: its name gives it
/// away.
fn check_host(app: &App, request: &Request) -> Result<(), Problem> {
    let settings = &app.settings;
    let Some(host) = host_of(request.headers(), request.uri()) else {
        return Err(Problem::new(
            StatusCode::FORBIDDEN,
            "bad_host",
            "the request has no Host header: send one",
        ));
    };
    // A page gets to an address by a name of its own; the address itself in the header is no such page's.
    let is_address =
        host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback() || settings.beyond_loopback);
    let is_named = settings.hosts.iter().any(|name| name.eq_ignore_ascii_case(&host));
    // Such a page has no token, so where one is needed any name may be right.
    let may_be_any = settings.beyond_loopback && settings.hosts.is_empty() && settings.tokens.is_some();
    if host == "localhost" || is_address || is_named || may_be_any {
        return Ok(());
    }
    let detail =
        "the server does not go by the name in the Host header: use localhost, or start it with --host NAME";
    Err(Problem::new(StatusCode::FORBIDDEN, "bad_host", detail))
}

/// A browser says for whose page it sends a request.
fn check_origin(request: &Request) -> Result<(), Problem> {
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let is_foreign = match (text("origin"), text("sec-fetch-site")) {
        (_, Some("cross-site" | "same-site")) => true,
        (Some(origin), _) => {
            let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
            let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
            let of_origin = origin.split_once("://").map(|(_, host)| host);
            of_origin.is_none() || of_origin != host
        }
        (None, _) => false,
    };
    // Somebody who follows a link to the page has come from elsewhere, too, and does no harm by it.
    let is_visit = text("sec-fetch-mode") == Some("navigate") && request.uri().path() == "/";
    if is_foreign && !is_visit {
        let detail = "a page of another origin sent this: use the server's own page, or a program";
        return Err(Problem::new(StatusCode::FORBIDDEN, "bad_origin", detail));
    }
    Ok(())
}

impl<S: Sync> FromRequestParts<S> for Arrived {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(parts.extensions.get().copied().unwrap_or_else(|| Self(CLOCK.now())))
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        app.caller(&parts.headers)
    }
}

impl App {
    /// Who sends a request with these headers, as the token file is now.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let Some(tokens) = &self.settings.tokens else { return Ok(Caller::anybody()) };
        let given = headers.get(header::AUTHORIZATION);
        let Some(given) = given else {
            let detail = "this server asks for a token: send the header 'Authorization: Bearer TOKEN'";
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "no_token", detail));
        };
        let token = given.to_str().ok().and_then(|text| text.split_once(' '));
        let token =
            token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
        token.and_then(|token| tokens.caller(token)).ok_or_else(|| {
            let detail =
                "the token is not known here: ask the operator for one, or look whether it was replaced";
            Problem::new(StatusCode::UNAUTHORIZED, "bad_token", detail)
        })
    }
}

/// A caller that may look at locks.
pub(crate) struct Viewer(pub(crate) Caller);

impl FromRequestParts<App> for Viewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        caller.may(Right::Look)?;
        Ok(Self(caller))
    }
}

/// A caller that may hold locks.
pub(crate) struct Client(pub(crate) Caller);

impl FromRequestParts<App> for Client {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, app).await?;
        caller.may(Right::Hold)?;
        Ok(Self(caller))
    }
}

/// The key by which a client sends a request again.
pub(crate) struct Key(pub(crate) Option<String>);

impl<S: Sync> FromRequestParts<S> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let Some(key) = parts.headers.get("idempotency-key") else { return Ok(Self(None)) };
        let key = key.to_str().unwrap_or_default();
        check_key(key)?;
        Ok(Self(Some(key.to_owned())))
    }
}

/// Refuses a key that is too long or has characters that a header or a path cannot have.
pub(crate) fn check_key(key: &str) -> Result<(), Problem> {
    let is_fine = !key.is_empty() && key.len() <= 128 && key.bytes().all(|byte| byte.is_ascii_graphic());
    if is_fine {
        return Ok(());
    }
    Err(Problem::invalid("bad Idempotency-Key: give 1 to 128 visible ASCII characters without spaces"))
}

/// The parts of the path.
pub(crate) struct InPath<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for InPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Path::from_request_parts(parts, app).await {
            Ok(Path(found)) => Ok(Self(found)),
            Err(error) => Err(Problem::invalid(format!("bad path: {}", error.body_text()))),
        }
    }
}

/// The parameters after the question mark.
pub(crate) struct InQuery<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for InQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        match Query::from_request_parts(parts, app).await {
            Ok(Query(found)) => Ok(Self(found)),
            Err(error) => Err(Problem::invalid(format!("bad parameter: {}", error.body_text()))),
        }
    }
}

/// A body of JSON, not too large and not too slow.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let kind = request
            .headers()
            .get(header::CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if kind != "application/json" {
            let detail = "the body is no JSON: send it with the header 'Content-Type: application/json'";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", detail));
        }
        let limits = &app.settings.limits;
        let reading = axum::body::to_bytes(request.into_body(), limits.body_bytes);
        let bytes = match tokio::time::timeout(limits.request_time, reading).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(_)) => {
                let detail =
                    format!("the body is cut off, or larger than {} bytes: send less", limits.body_bytes);
                return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", detail));
            }
            Err(_) => {
                let detail = "the body did not arrive in time: send it at once";
                return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", detail));
            }
        };
        let bad = |error| Problem::invalid(format!("bad JSON: {error}"));
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(bad)?;
        if !value.is_object() {
            return Err(Problem::invalid("bad JSON: send an object, such as {}"));
        }
        serde_json::from_value(value).map(Self).map_err(bad)
    }
}
