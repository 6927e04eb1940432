//! A receiver of CloudEvents over HTTP, in the binary mode, for machines without a broker. It remembers what it has confirmed.
//!
//! It drops no repeats: whoever reads it counts them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use symphony_proof::kit::audit::events::Event;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::failure::Failure;

/// A receiver that listens. It ends with this value.
pub(super) struct Receiver {
    port: u16,
    books: Arc<Books>,
    server: JoinHandle<()>,
}

#[derive(Default)]
struct Books {
    shut: AtomicBool,
    taken: Mutex<Vec<Event>>,
}

impl Receiver {
    /// Opens one on a free port of this machine.
    pub(super) async fn open() -> Result<Self, Failure> {
        let opened = async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            Ok((listener.local_addr()?.port(), listener))
        };
        let (port, listener) = opened
            .await
            .map_err(|error: std::io::Error| Failure::because("the receiver of events cannot listen", error))?;
        let books = Arc::new(Books::default());
        let routes = Router::new().fallback(take).with_state(Arc::clone(&books));
        // Where it ends by itself, events stay unpublished, and the audit says so.
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, routes).await;
        });
        Ok(Self { port, books, server })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// While it is shut it takes nothing.
    pub(super) fn shut(&self, shut: bool) {
        self.books.shut.store(shut, Ordering::SeqCst);
    }

    /// What it has confirmed, in that order.
    pub(super) fn taken(&self) -> Vec<Event> {
        self.books.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Takes one event. Its data is read and thrown away: axum reads 2 MiB and no more.
async fn take(State(books): State<Arc<Books>>, headers: HeaderMap, _data: Bytes) -> StatusCode {
    if books.shut.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let header = |name: &str| headers.get(name)?.to_str().ok();
    let id = header("ce-id").and_then(|id| id.parse().ok());
    let (Some(id), Some(key)) = (id, header("ce-partitionkey")) else { return StatusCode::BAD_REQUEST };
    let mut taken = books.taken.lock().unwrap_or_else(PoisonError::into_inner);
    taken.push(Event { id, key: key.to_owned() });
    StatusCode::NO_CONTENT
}
