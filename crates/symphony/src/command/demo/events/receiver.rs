//! An HTTP receiver of CloudEvents in binary mode, for machines without a broker.
//!
//! It keeps every confirmed event, duplicates included: the audit counts them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use symphony_testkit::reconciliation::events::Event;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::failure::Failure;

/// A running receiver. Dropping it ends it.
pub(super) struct Receiver {
    port: u16,
    received: Arc<Received>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Received {
    down: AtomicBool,
    events: Mutex<Vec<Event>>,
}

impl Receiver {
    /// Starts a receiver on a free loopback port.
    pub(super) async fn open() -> Result<Self, Failure> {
        let opened = async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            Ok((listener.local_addr()?.port(), listener))
        };
        let (port, listener) = opened
            .await
            .map_err(|error: std::io::Error| Failure::because("the HTTP receiver cannot listen", error))?;
        let received = Arc::new(Received::default());
        let routes = Router::new().fallback(receive).with_state(Arc::clone(&received));
        // If it ends by itself, events stay unpublished, and the audit reports them.
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, routes).await;
        });
        Ok(Self { port, received, server })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// While it is down, it answers 503.
    pub(super) fn set_down(&self, down: bool) {
        self.received.down.store(down, Ordering::SeqCst);
    }

    /// The confirmed events, in order.
    pub(super) fn events(&self) -> Vec<Event> {
        self.received.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Takes one event. Its data is read and thrown away: axum reads 2 MiB and no more.
async fn receive(State(received): State<Arc<Received>>, headers: HeaderMap, _data: Bytes) -> StatusCode {
    if received.down.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let id = header("ce-id").and_then(|id| id.parse().ok());
    let (Some(id), Some(key)) = (id, header("ce-partitionkey")) else { return StatusCode::BAD_REQUEST };
    let mut events = received.events.lock().unwrap_or_else(PoisonError::into_inner);
    events.push(Event { id, key: key.to_owned() });
    StatusCode::NO_CONTENT
}
