//! Health, readiness and metrics over HTTP, for machines on the same network, and beside them the console where there is one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode_eof;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;
use symphony_relay::stop::{StopMode, StopSignal};
use tokio::net::TcpListener;

use super::gauges::Gauges;
use super::meter::LaneMeter;
use crate::failure::Failure;
use crate::server;

/// How long the database may say nothing before this process is not ready. An idle engine asks it twice a second, a
/// busy one renews its leases several times as often as this.
const SILENCE: Duration = Duration::from_secs(30);

/// What the endpoints show.
pub(crate) struct Shown {
    pub(crate) registry: Registry,
    /// One for each lane that is served.
    pub(crate) meters: Vec<Arc<LaneMeter>>,
    pub(crate) gauges: Gauges,
    pub(crate) stop: StopSignal,
}

/// Takes the address that this setting gives. Nothing is answered yet.
pub(crate) async fn bind(setting: &str, address: &str) -> Result<TcpListener, Failure> {
    server::listen(address).await.map_err(|error| {
        Failure::usage(format!("{setting}: cannot listen at {address}: {error}"))
            .hint("give another address, port 0 for a free one, or \"\" for none")
    })
}

/// The probes, and the console where it is at the same address.
pub(crate) fn routes(shown: Shown, console: Option<Router>) -> Router {
    let console = console.unwrap_or_else(|| Router::new().route("/", get(no_console)));
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(shown))
        .merge(console)
}

async fn no_console() -> &'static str {
    "There is no console at this address: see console.read_url and console.listen in the settings, and docs/console.md.\n"
}

/// Where they are.
pub(crate) fn place(listener: &TcpListener) -> Option<SocketAddr> {
    listener.local_addr().ok()
}

/// The process is there, and its loop is not stuck: this is answered by the same threads.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether work that is committed now would be carried.
async fn readyz(State(shown): State<Arc<Shown>>) -> Response {
    if shown.stop.mode() != StopMode::Run {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    let silences: Option<Vec<_>> = shown.meters.iter().map(|meter| meter.silence()).collect();
    match silences.and_then(|silences| silences.into_iter().max()) {
        Some(silence) if silence < SILENCE => "ready\n".into_response(),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n").into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "starting\n").into_response(),
    }
}

async fn metrics(State(shown): State<Arc<Shown>>) -> Response {
    let mut text = String::new();
    if encode_registry(&mut text, &shown.registry).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    text.push_str(&shown.gauges.text().await);
    let _ = encode_eof(&mut text);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
