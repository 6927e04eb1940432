//! The HTTP server: connection limit, timeouts and shutdown.

use std::{convert::Infallible, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Router, response::Response};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};

use super::{
    request_handler::RequestHandler,
    response::{ConnectionCut, NoResponse},
    routes::router,
};

/// The most headers of a request.
const MAX_HEADERS: usize = 64;
/// The largest request head, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// How long the fault "timeout" holds a connection that the client does not close.
const HOLD_TIMEOUT: Duration = Duration::from_secs(600);
/// How long running requests may take after the shutdown began.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The configurable limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Concurrent connections; others wait.
    pub connections: usize,
    /// How long a head may take to arrive, and how long a connection may idle.
    pub head_timeout: Duration,
}

/// Serves until `end` completes or the ledger can no longer be written, then waits for running requests.
pub(super) async fn serve(
    listener: TcpListener,
    handler: Arc<RequestHandler>,
    limits: Limits,
    end: impl Future<Output = ()>,
) {
    let router = router(Arc::clone(&handler));
    let permits = Arc::new(Semaphore::new(limits.connections));
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    {
        let mut end = pin!(end);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &permits) => accepted,
                () = &mut end => break,
                () = handler.ledger.ended() => break,
            };
            while connections.try_join_next().is_some() {}
            if let Some((stream, permit)) = accepted {
                let work = connection(stream, router.clone(), limits.head_timeout, stopping.clone());
                connections.spawn(async move {
                    work.await;
                    drop(permit);
                });
            }
        }
    }
    drop(listener);
    stop.send_replace(true);
    let _ =
        tokio::time::timeout(SHUTDOWN_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
}

/// The next connection, once a permit is free.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(_) => {
            // Most likely out of file descriptors: pause instead of a busy loop.
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

async fn connection(
    stream: TcpStream,
    router: Router,
    head_timeout: Duration,
    mut stopping: watch::Receiver<bool>,
) {
    // Responses are small, so do not wait for more data.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(router);
    let held = stopping.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (answer, held) = (service.call(request), held.clone());
        async move { deliver(answer.await, held).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // How a connection ends is up to the client: tests try every way.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Sends the response, unless a fault keeps it from the client.
async fn deliver(
    answer: Result<Response, Infallible>,
    mut stopping: watch::Receiver<bool>,
) -> Result<Response, ConnectionCut> {
    let Ok(response) = answer;
    match response.extensions().get::<NoResponse>() {
        None => Ok(response),
        Some(NoResponse::Cut) => Err(ConnectionCut),
        Some(NoResponse::Hold) => {
            let _ = tokio::time::timeout(HOLD_TIMEOUT, stopping.wait_for(|stop| *stop)).await;
            Err(ConnectionCut)
        }
    }
}

/// Binds an address.
pub(super) async fn listen(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let taken = listener.local_addr()?;
    Ok((listener, taken))
}
