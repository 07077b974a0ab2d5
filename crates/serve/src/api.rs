//! The HTTP surface: one file per subject, and the document that describes them all.

pub(crate) mod events;
pub(crate) mod holds;
pub(crate) mod locks;
pub(crate) mod server;
pub(crate) mod sessions;
pub(crate) mod stream;
pub(crate) mod time;

use crate::app::App;
use crate::error::Problem;
use crate::extract;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{delete, get, post};
use axum::{Router, response::IntoResponse};
use tower_http::compression::CompressionLayer;
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{ContentBuilder, Ref, RefOr};

/// The routes. The page's files are those of `page`.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/v1/sessions", post(sessions::make))
        .route("/v1/sessions/{session}", delete(sessions::end))
        .route("/v1/sessions/{session}/heartbeat", post(sessions::heartbeat))
        .route("/v1/sessions/{session}/requests/{key}", delete(holds::take_back))
        .route("/v1/holds", post(holds::acquire))
        .route("/v1/holds/{hold}", get(holds::show).delete(holds::release))
        .route("/v1/holds/{hold}/downgrade", post(holds::downgrade))
        .route("/v1/holds/{hold}/events", get(events::of_hold))
        .route("/v1/hold", get(stream::hold))
        .route("/v1/locks/{*name}", get(locks::show).delete(locks::evict))
        .route("/v1/events", get(events::of_locks))
        .route("/v1/server", get(server::show))
        .route("/healthz", get(server::healthz))
        .route("/readyz", get(server::readyz))
        .merge(long_texts())
        .fallback(|| async {
            Problem::new(StatusCode::NOT_FOUND, "not_found", "there is nothing here: see /openapi.json")
        })
        .method_not_allowed_fallback(|| async {
            let detail = "this path does not take this method: see /openapi.json";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
        })
        .layer(from_fn(log))
        .layer(from_fn_with_state(app.clone(), extract::check))
        .with_state(app)
}

/// What grows with the number of locks, or is sent to browsers: compressed for those who take it so. Streams are not among it, since
/// a compressor would keep their lines back.
fn long_texts() -> Router<App> {
    Router::new()
        .route("/v1/locks", get(locks::list))
        .route("/metrics", get(server::metrics))
        .route("/openapi.json", get(document))
        .merge(crate::page::router())
        .layer(CompressionLayer::new())
}

/// One event per request, without headers and parameters: they may have secrets.
async fn log(request: axum::extract::Request, next: axum::middleware::Next) -> axum::response::Response {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return next.run(request).await;
    }
    let (method, route) =
        (request.method().clone(), request.extensions().get::<axum::extract::MatchedPath>().cloned());
    let response = next.run(request).await;
    let route = route.as_ref().map_or("(none)", |route| route.as_str());
    tracing::debug!(%method, route, status = response.status().as_u16(), "request");
    response
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "lockkeeper",
        description = "Distributed locks over HTTP: fair waits without polling, renewal, fencing tokens, and a deadline for every hold.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        sessions::make, sessions::heartbeat, sessions::end,
        holds::acquire, holds::show, holds::downgrade, holds::release, holds::take_back,
        events::of_hold, events::of_locks, stream::hold,
        locks::list, locks::show, locks::evict,
        server::show, server::healthz, server::readyz, server::metrics,
    ),
    components(schemas(Problem, events::Change)),
    modifiers(&Common),
)]
struct Document;

/// What all requests have alike: tokens, and refusals of one shape.
struct Common;

impl utoipa::Modify for Common {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        for path in document.paths.paths.values_mut() {
            let all = [&mut path.get, &mut path.post, &mut path.delete];
            for operation in all.into_iter().flatten() {
                for (status, response) in &mut operation.responses.responses {
                    if let RefOr::T(response) = response
                        && status.as_str() >= "400"
                    {
                        response.content.insert("application/problem+json".into(), RefOr::T(problem.clone()));
                    }
                }
            }
        }
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)));
    }
}

/// The OpenAPI document of this server, as JSON.
pub fn openapi() -> String {
    Document::openapi().to_pretty_json().unwrap_or_default()
}

async fn document() -> impl IntoResponse {
    ([(axum::http::header::CONTENT_TYPE, "application/json")], openapi())
}
