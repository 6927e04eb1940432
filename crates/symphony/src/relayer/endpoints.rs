//! The HTTP endpoints `/healthz`, `/readyz` and `/metrics`, and the console's routes where it shares their address.

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
use symphony_console::server;
use symphony_relay::stop::{StopMode, StopSignal};
use tokio::net::TcpListener;

use super::gauges::Gauges;
use super::metrics::LaneMetrics;
use crate::failure::Failure;

/// The process is not ready once the database has not answered, or claims have failed, for this long. An idle engine
/// claims twice a second, and a busy one renews its leases several times within this timeout.
const READINESS_TIMEOUT: Duration = Duration::from_secs(30);

/// The state that the endpoints report.
pub(crate) struct EndpointState {
    pub(crate) registry: Registry,
    /// One per served lane.
    pub(crate) meters: Vec<Arc<LaneMetrics>>,
    pub(crate) gauges: Gauges,
    pub(crate) stop: StopSignal,
}

/// Binds the address of this setting. Requests wait until the server runs.
pub(crate) async fn bind(setting: &str, address: &str) -> Result<TcpListener, Failure> {
    server::listen(address).await.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process listens there, such as a relayer with the same settings: stop it, set another address, \
                 or port 0 for a free port"
            }
            _ => "set another address, port 0 for a free port, or \"\" to switch it off",
        };
        Failure::usage(format!("{setting}: cannot listen at {address}: {error}")).hint(hint)
    })
}

/// The routes of the endpoints, and of the console where it shares their address.
pub(crate) fn routes(state: EndpointState, console: Option<Router>) -> Router {
    let console = console.unwrap_or_else(|| Router::new().route("/", get(no_console)));
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(state))
        .merge(console)
}

async fn no_console() -> &'static str {
    "The console is not at this address: see console.read_url and console.listen in the settings, and docs/console.md.\n"
}

/// The address that a listener is bound to.
pub(crate) fn local_address(listener: &TcpListener) -> Option<SocketAddr> {
    listener.local_addr().ok()
}

/// The process is alive and its threads are not stuck: the engine's threads answer this request.
async fn healthz() -> &'static str {
    "ok\n"
}

/// Ready: every lane's engine runs, the database answers it, and its claims succeed. A database that answers but
/// refuses every claim, because it is read-only, lacks a right or has a full lock table, is of no use.
async fn readyz(State(state): State<Arc<EndpointState>>) -> Response {
    if state.stop.mode() != StopMode::Run {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    let ages: Option<Vec<_>> = state.meters.iter().map(|meter| meter.since_last_answer()).collect();
    let claims_fail_for = state.meters.iter().filter_map(|meter| meter.claims_fail_for()).max();
    match ages.and_then(|ages| ages.into_iter().max()) {
        Some(age) if age < READINESS_TIMEOUT && claims_fail_for.is_some_and(|time| time >= READINESS_TIMEOUT) => {
            (StatusCode::SERVICE_UNAVAILABLE, "claims fail: see the log\n").into_response()
        }
        Some(age) if age < READINESS_TIMEOUT => "ready\n".into_response(),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n").into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "starting\n").into_response(),
    }
}

async fn metrics(State(state): State<Arc<EndpointState>>) -> Response {
    let mut text = String::new();
    if encode_registry(&mut text, &state.registry).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    text.push_str(&state.gauges.text().await);
    let _ = encode_eof(&mut text);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
