//! The backend process id that the server sent when a connection was made (BackendKeyData).
//!
//! PostgreSQL sends the id of the process that serves the connection. A pooler sends an id that it made up, because the
//! process changes. tokio-postgres does not expose the id, but writes it into a cancel request. So this module sends a
//! cancel request into an in-memory pipe and reads the id from there.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// Request codes of the protocol, after the length.
const SSL_REQUEST: i32 = 80_877_103;
const CANCEL_REQUEST: i32 = 80_877_102;
/// Larger than both requests together.
const PIPE_BYTES: usize = 64;

/// The id that this connection received; none if it received none.
pub(super) async fn announced(client: &Client) -> Option<i32> {
    let (request, pipe) = tokio::io::duplex(PIPE_BYTES);
    let token = client.cancel_token();
    let (_, pid) = tokio::join!(token.cancel_query_raw(Pipe(request), NoTls), read_pid(pipe));
    pid.ok().filter(|pid| *pid != 0)
}

/// Drops its end of the pipe as soon as it has the id, so that the writer fails instead of waiting.
async fn read_pid(mut pipe: DuplexStream) -> io::Result<i32> {
    loop {
        let _length = pipe.read_i32().await?;
        match pipe.read_i32().await? {
            // A client that requires TLS sends SSLRequest first. Accept it; `NoTls` then does nothing.
            SSL_REQUEST => pipe.write_all(b"S").await?,
            CANCEL_REQUEST => return pipe.read_i32().await,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// A TLS connector that does not encrypt, because the pipe stays in this process.
struct NoTls;

impl TlsConnect<Pipe> for NoTls {
    type Stream = Pipe;
    type Error = io::Error;
    type Future = std::future::Ready<io::Result<Pipe>>;

    fn connect(self, pipe: Pipe) -> Self::Future {
        std::future::ready(Ok(pipe))
    }
}

struct Pipe(DuplexStream);

impl TlsStream for Pipe {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
