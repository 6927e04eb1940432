//! Connections: how many, how long, and how they end.

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
    answer::{Severed, Silence},
    desk::Desk,
    routes::router,
};

/// How many headers a request may have.
const HEADERS: usize = 64;
/// How many bytes of a head are read.
const HEAD: usize = 16 * 1024;
/// "Never" has an end: a connection that nobody closes would be lost for good.
const NEVER: Duration = Duration::from_secs(600);
/// How long requests that are under way may take once the end was asked for.
const GRACE: Duration = Duration::from_secs(5);

/// What a person can choose of the bounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many connections at a time; others wait.
    pub(crate) connections: usize,
    /// How long a head may take to arrive, and how long a connection may idle.
    pub(crate) head_time: Duration,
}

/// Serves until `end` comes or the ledger can no longer be written; then lets what is under way finish for a while.
pub(super) async fn serve(listener: TcpListener, desk: Arc<Desk>, limits: Limits, end: impl Future<Output = ()>) {
    let router = router(Arc::clone(&desk));
    let places = Arc::new(Semaphore::new(limits.connections));
    let (stop, stopping) = watch::channel(false);
    let mut connections = JoinSet::new();
    {
        let mut end = pin!(end);
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &places) => accepted,
                () = &mut end => break,
                () = desk.journal.ended() => break,
            };
            while connections.try_join_next().is_some() {}
            if let Some((stream, place)) = accepted {
                let work = connection(stream, router.clone(), limits.head_time, stopping.clone());
                connections.spawn(async move {
                    work.await;
                    drop(place);
                });
            }
        }
    }
    drop(listener);
    stop.send_replace(true);
    let _ = tokio::time::timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
}

/// The next connection, once there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(_) => {
            // Out of files, most likely: to ask again at once would only burn the processor.
            tokio::time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

async fn connection(stream: TcpStream, router: Router, head_time: Duration, mut stopping: watch::Receiver<bool>) {
    // Answers are small and waited for.
    let _ = stream.set_nodelay(true);
    let service = TowerToHyperService::new(router);
    let held = stopping.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let (answer, held) = (service.call(request), held.clone());
        async move { heard(answer.await, held).await }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_time)
        .max_headers(HEADERS)
        .max_buf_size(HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // How a connection ended is the other side's affair: it is among the things that are tried here.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// The answer, unless it is one that must not be heard.
async fn heard(
    answer: Result<Response, Infallible>,
    mut stopping: watch::Receiver<bool>,
) -> Result<Response, Severed> {
    let Ok(response) = answer;
    match response.extensions().get::<Silence>() {
        None => Ok(response),
        Some(Silence::Cut) => Err(Severed),
        Some(Silence::Hold) => {
            let _ = tokio::time::timeout(NEVER, stopping.wait_for(|stop| *stop)).await;
            Err(Severed)
        }
    }
}

/// Takes an address.
pub(super) async fn listen(address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let taken = listener.local_addr()?;
    Ok((listener, taken))
}
