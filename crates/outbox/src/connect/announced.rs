//! Which process of the server serves a connection, as was said when it was made.
//!
//! A server tells everybody the number of the process, for requests to cancel. A pooler tells a number of its own making: the process changes, and it has to
//! find its client by it. tokio-postgres shows that number to nobody, but writes it into a request to cancel: so one is written, into a pipe that leads
//! nowhere.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// The first words of a request, behind its length.
const ENCRYPT: i32 = 80_877_103;
const CANCEL: i32 = 80_877_102;
/// More than both requests have.
const PIPE: usize = 64;

/// What was said when this connection was made; none if nothing was.
pub(super) async fn process(client: &Client) -> Option<i32> {
    let (request, pipe) = tokio::io::duplex(PIPE);
    let token = client.cancel_token();
    let (_, process) = tokio::join!(token.cancel_query_raw(Pipe(request), Through), read(pipe));
    process.ok().filter(|process| *process != 0)
}

/// Holds its end of the pipe no longer than it reads: whoever still writes then is refused, and waits for nothing.
async fn read(mut pipe: DuplexStream) -> io::Result<i32> {
    loop {
        let _length = pipe.read_i32().await?;
        match pipe.read_i32().await? {
            // Whoever was asked to encrypt is asked to again, and says yes.
            ENCRYPT => pipe.write_all(b"S").await?,
            CANCEL => return pipe.read_i32().await,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Encrypts nothing: the pipe is our own.
struct Through;

impl TlsConnect<Pipe> for Through {
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
