//! Health, readiness and metrics over HTTP, for machines on the same network, and beside them the console where there is one.
//!
//! How many connections there may be and how long they may take to say what they want is decided here, for all of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::encoding::text::encode_eof;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;
use symphony_relay::stop::{Signal, Wish};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::gauges::Gauges;
use super::meter::LaneMeter;
use crate::failure::Failure;

/// How long the database may say nothing before this process is not ready. An idle engine asks it twice a second, a
/// busy one renews its leases several times as often as this.
const SILENCE: Duration = Duration::from_secs(30);

/// Connections at a time; others wait.
const CONNECTIONS: usize = 256;
/// How long a head may take to arrive, and how long a connection may idle.
const HEAD_TIME: Duration = Duration::from_secs(20);
/// How many headers a request may have, and how many bytes of a head are read.
const HEADERS: usize = 64;
const HEAD: usize = 16 * 1024;
/// How long to wait before asking for the next connection where there was none to have: out of files, most likely.
const BREATH: Duration = Duration::from_millis(50);

/// What the endpoints show.
pub(crate) struct Shown {
    pub(crate) registry: Registry,
    /// One for each lane that is served.
    pub(crate) meters: Vec<Arc<LaneMeter>>,
    pub(crate) gauges: Gauges,
    pub(crate) stop: Signal,
}

/// Takes the address. Nothing is answered yet.
pub(crate) async fn bind(address: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::usage(format!("relayer.endpoints: cannot listen at {address}: {error}"))
            .hint("give another address, port 0 for a free one, or \"\" for none")
    })
}

/// Answers until the process ends.
pub(crate) async fn serve(listener: TcpListener, shown: Shown, console: Option<Router>) {
    let console = console.unwrap_or_else(|| Router::new().route("/", get(no_console)));
    let routes = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Arc::new(shown))
        .merge(console);
    answer(listener, routes).await;
}

/// Answers by these routes until the process ends.
pub(crate) async fn answer(listener: TcpListener, routes: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(BREATH).await;
            continue;
        };
        let routes = routes.clone();
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            // How a connection ends is the other side's affair.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .max_headers(HEADERS)
                .max_buf_size(HEAD)
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
                .await;
            drop(place);
        });
    }
}

async fn no_console() -> &'static str {
    "The console is not set up: give console.read_url in the settings, and see docs/console.md.\n"
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
    if shown.stop.wish() != Wish::Run {
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
