//! One connection through the proxy, and its two directions.

use std::io;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

use super::fault::FaultKind;
use super::requests::Requests;
use super::wire::{self, Opening};
use super::{Shared, Stalled};

/// The message types ReadyForQuery and ErrorResponse.
const READY: u8 = b'Z';
const REFUSED: u8 = b'E';
/// Limits how much of a reply is held.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Why one direction has ended.
enum End {
    /// The client has closed the connection.
    ClientClosed,
    /// The server has closed the connection.
    ServerClosed,
    /// A fault has closed the connection.
    FaultInjected,
}

/// Forwards a connection in the background, until it ends or is cut.
pub(super) fn start(client: TcpStream, shared: &Arc<Shared>) {
    // In this order: a cut waits for all registered sessions, so each must see it.
    let mut cuts = shared.cuts.subscribe();
    let entry = Entry::register(shared);
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let entry = entry; // dropped last, when the connection is closed on both sides
        let cut = tokio::select! {
            _ = cuts.changed() => true,
            // Both sides see the end of the connection; no other report is needed.
            _ = forward(client, &shared) => false,
        };
        shared.counts().cut += u64::from(cut);
        drop(entry);
    });
}

/// The registration of an open connection.
struct Entry {
    number: u64,
    shared: Arc<Shared>,
}

impl Entry {
    fn register(shared: &Arc<Shared>) -> Self {
        let mut number = 0;
        shared.open.send_modify(|open| {
            number = shared.next.fetch_add(1, Ordering::SeqCst);
            open.insert(number);
        });
        shared.counts().connections += 1;
        Self { number, shared: Arc::clone(shared) }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.open.send_modify(|open| {
            open.remove(&self.number);
        });
    }
}

async fn forward(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let opening = loop {
        let opening = wire::read_opening(&mut client).await?;
        wait_until_free(shared, |stalled| !stalled.to_server).await;
        match opening {
            None => return Ok(()),
            Some(Opening::Encryption) => client.write_all(b"N").await?,
            Some(opening) => break opening,
        }
    };
    let address = shared.server();
    let mut server = TcpStream::connect((address.host.as_str(), address.port)).await?;
    server.set_nodelay(true)?;
    let requests = Mutex::new(Requests::default());
    match opening {
        Opening::Session(bytes) => {
            lock(&requests).opened();
            server.write_all(&bytes).await?;
        }
        Opening::Cancel(bytes) => {
            server.write_all(&bytes).await?;
            // The server closes the connection when it has processed the request.
            server.read_to_end(&mut Vec::new()).await?;
            return Ok(());
        }
        Opening::Encryption => return Ok(()), // was answered above
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut upwards = pin!(client_to_server(from_client, to_server, shared, &requests));
    let mut downwards = pin!(server_to_client(from_server, to_client, shared, &requests));
    tokio::select! {
        end = &mut upwards => if let Ok(End::ServerClosed) = end {
            // Its last messages may still be in transit.
            downwards.await?;
        },
        end = &mut downwards => {
            end?;
        }
    }
    Ok(())
}

/// Forwards messages of the client to the server.
async fn client_to_server(
    client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    shared: &Shared,
    requests: &Mutex<Requests>,
) -> io::Result<End> {
    let mut client = BufReader::new(client);
    loop {
        let message = wire::read(&mut client).await;
        wait_until_free(shared, |stalled| !stalled.to_server).await;
        let Some(message) = message? else { return Ok(End::ClientClosed) };
        // Marked before it is forwarded: the reply may arrive before this task runs again.
        let executes = lock(requests).parse(&message);
        if let Some(sql) = executes {
            match shared.faults.reserve(&sql) {
                Some(mut injection) if injection.kind() == FaultKind::RequestLost => {
                    shared.counts().requests_lost += 1;
                    injection.fire();
                    return Ok(End::FaultInjected);
                }
                Some(injection) => lock(requests).mark(injection),
                None => {}
            }
            shared.counts().requests += 1;
        }
        if server.write_all(message.bytes()).await.is_err() {
            return Ok(End::ServerClosed);
        }
    }
}

/// Forwards messages of the server to the client.
async fn server_to_client(
    server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    shared: &Shared,
    requests: &Mutex<Requests>,
) -> io::Result<End> {
    let mut server = BufReader::new(server);
    let mut held = Vec::new();
    let mut refused = false;
    loop {
        let message = wire::read(&mut server).await;
        wait_until_free(shared, |stalled| !stalled.to_client).await;
        let Ok(Some(message)) = message else {
            client.write_all(&held).await?;
            return Ok(End::ServerClosed);
        };
        refused |= message.kind() == REFUSED;
        if held.is_empty() && !lock(requests).is_marked() {
            if message.kind() == READY {
                lock(requests).answered();
                refused = false;
            }
            client.write_all(message.bytes()).await?;
            continue;
        }
        held.extend_from_slice(message.bytes());
        if held.len() > MAX_REPLY_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the reply is too long to be held"));
        }
        if message.kind() != READY {
            continue;
        }
        let injection = lock(requests).answered();
        if let Some(mut injection) = injection.filter(|_| !refused) {
            match injection.kind() {
                FaultKind::ReplyLost => {
                    shared.counts().replies_lost += 1;
                    injection.fire();
                    return Ok(End::FaultInjected);
                }
                FaultKind::ReplyHeld => {
                    shared.counts().replies_held += 1;
                    injection.fire();
                    injection.released().await;
                }
                FaultKind::RequestLost => {} // the server never received such a request
            }
        }
        client.write_all(&held).await?;
        held.clear();
        refused = false;
    }
}

/// Waits while a direction is stalled.
async fn wait_until_free(shared: &Shared, free: impl FnMut(&Stalled) -> bool) {
    let mut stalled: watch::Receiver<Stalled> = shared.stalled.subscribe();
    let _ = stalled.wait_for(free).await;
}

fn lock(requests: &Mutex<Requests>) -> MutexGuard<'_, Requests> {
    requests.lock().unwrap_or_else(PoisonError::into_inner)
}
