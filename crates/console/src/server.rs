//! The HTTP server of `symphony run` for probes, metrics and the console, with limits against slow and greedy clients.
//!
//! It knows no route. It limits connections and the time of each step of a request, and refuses requests by their head.
//!
//! The server accepts every new connection. If it is full, it closes the connection that has kept it waiting longest
//! ([`connections`]), so that it answers probes during an attack, even one from the prober's own address.
//!
//! # Layout
//! - [`connections`]: the open connections, and which of them is closed for a new one
//! - [`head`]: checks of the request head: host name, length, encoding
//! - [`wire`]: a socket with a write timeout, and bodies that report when the server waits for the client

mod connections;
pub(crate) mod head;
mod wire;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};

use connections::{Connections, Open};
pub use head::Hosts;
use wire::{RequestBody, ResponseBody, Wire};

/// How long a head may take to arrive, and how long a connection may idle between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers of a request.
const MAX_HEADERS: usize = 64;
/// Bytes of a head, the path and the query included.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Requests on one connection; the answer to the last one closes it.
const MAX_REQUESTS: u32 = 1000;
/// After this time a connection takes no further request.
const KEEP_ALIVE_LIFETIME: Duration = Duration::from_mins(10);
/// How long the last request of such a connection may still take: longer than an export or a live stream.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_mins(12);
/// How much of a response the kernel buffers for a client that does not read; it allocates twice as much.
const SEND_BUFFER_BYTES: u32 = 64 * 1024;
/// Connections that the kernel completes before they are accepted.
const BACKLOG: u32 = 1024;
/// Pause after a failed accept, which most likely means that the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The configurable limits.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at the same time.
    pub connections: usize,
    /// Connections at the same time from one address.
    pub per_peer: usize,
    /// Names under which the server answers, beside addresses and localhost.
    pub hosts: Hosts,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 256, per_peer: 128, hosts: Hosts::default() }
    }
}

/// Listens at this address without accepting connections yet.
pub async fn listen(address: &str) -> io::Result<TcpListener> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in tokio::net::lookup_host(address).await? {
        match listen_at(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    // Accepted sockets inherit it.
    socket.set_send_buffer_size(SEND_BUFFER_BYTES)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves these routes until the process ends.
pub async fn serve(listener: TcpListener, routes: Router, limits: Limits) {
    let connections = Arc::new(Connections::new(limits.connections, limits.per_peer));
    let hosts = Arc::new(limits.hosts);
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Some(open) = connections.open(peer.ip()) else {
            // Every connection is in the middle of an action. A reset is cheaper than an answer that a flood would not
            // read.
            let _ = stream.set_zero_linger();
            continue;
        };
        tokio::spawn(handle(stream, open, routes.clone(), Arc::clone(&hosts)));
    }
}

async fn handle(stream: TcpStream, open: Open, routes: Router, hosts: Arc<Hosts>) {
    let _ = stream.set_nodelay(true);
    let state = Arc::clone(open.state());
    let routes = TowerToHyperService::new(routes);
    let count = AtomicU32::new(0);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        state.request_arrived(request.method());
        let is_last = count.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_REQUESTS;
        let problem = head::check(&request, &hosts).err();
        let answer = match problem {
            Some(problem) => Err(problem),
            None => Ok(routes.call(request.map(|body| RequestBody::new(body, Arc::clone(&state))))),
        };
        let state = Arc::clone(&state);
        async move {
            let (mut response, closes): (Response, bool) = match answer {
                Ok(answer) => {
                    let Ok(response) = answer.await;
                    (response, is_last)
                }
                Err(problem) => (problem.into_response(), true),
            };
            if closes {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            state.response_began();
            Ok::<_, Infallible>(response.map(|body| ResponseBody::new(body, state)))
        }
    });
    let wire = TokioIo::new(Wire::new(stream, Arc::clone(&state)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(wire, service);
    let mut connection = pin!(connection);
    // How a connection ends is up to the client.
    tokio::select! {
        // An answer that is ready is written before the connection is closed.
        biased;
        _ = connection.as_mut() => return,
        () = state.closed() => return,
        () = sleep(KEEP_ALIVE_LIFETIME) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        biased;
        _ = timeout(LAST_REQUEST_TIMEOUT, connection) => {}
        () = state.closed() => {}
    }
}
