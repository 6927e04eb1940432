//! Forwards connections from a port of its own to another port, until a test cuts it.
//!
//! It forwards bytes of any protocol. It runs on its own thread, so that a test may block.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::port::{HOST, free_port};

/// How long to wait after `accept` has failed, for example because there are too many open files.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Connections are closed, and new ones at once.
    Cut,
    Ended,
}

/// A port that leads to another one. Dropping it closes all connections.
#[derive(Debug)]
pub(super) struct Tunnel {
    port: u16,
    state: watch::Sender<State>,
    thread: Option<JoinHandle<()>>,
}

impl Tunnel {
    /// Opens a tunnel to this port on the loopback address.
    pub(super) fn to(target: u16) -> io::Result<Self> {
        let port = free_port()?;
        let listener = std::net::TcpListener::bind((HOST, port))?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let (state, states) = watch::channel(State::Open);
        let thread = thread::Builder::new().name("tunnel".into());
        let thread = thread.spawn(move || runtime.block_on(accept_loop(listener, target, states)))?;
        Ok(Self { port, state, thread: Some(thread) })
    }

    /// The port that leads through the tunnel.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Closes all connections, and each new one.
    pub(super) fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// Forwards new connections again.
    pub(super) fn restore(&self) {
        self.state.send_replace(State::Open);
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.state.send_replace(State::Ended);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept_loop(listener: TcpListener, target: u16, mut state: watch::Receiver<State>) {
    let ends = state.clone();
    loop {
        tokio::select! {
            ended = state.wait_for(|state| *state == State::Ended) => {
                drop(ended);
                return;
            }
            accepted = listener.accept() => match accepted {
                Ok((client, _)) if *ends.borrow() == State::Open => {
                    tokio::spawn(forward(client, target, ends.clone()));
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
            },
        }
    }
}

async fn forward(mut client: TcpStream, target: u16, mut state: watch::Receiver<State>) {
    let Ok(mut server) = TcpStream::connect((HOST, target)).await else { return };
    tokio::select! {
        _ = state.wait_for(|state| *state != State::Open) => {}
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_tunnel_forwards_until_it_is_cut_and_again_when_it_is_restored() {
        let server = TcpListener::bind((HOST, 0)).await.unwrap();
        let tunnel = Tunnel::to(server.local_addr().unwrap().port()).unwrap();
        let connect = async || TcpStream::connect((HOST, tunnel.port())).await.unwrap();
        let mut client = connect().await;
        let (mut accepted, _) = server.accept().await.unwrap();
        client.write_all(b"x").await.unwrap();
        assert_eq!(accepted.read_u8().await.unwrap(), b'x');

        tunnel.cut();
        assert!(client.read_u8().await.is_err() && accepted.read_u8().await.is_err(), "both ends are closed");
        assert!(connect().await.read_u8().await.is_err(), "a new connection is closed too");

        tunnel.restore();
        let mut client = connect().await;
        let (mut accepted, _) = server.accept().await.unwrap();
        accepted.write_all(b"y").await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), b'y');
    }
}
