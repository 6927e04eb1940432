//! A socket with a write timeout, and bodies that report when the server waits for the client.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::connections::State;

/// How long a client may read nothing of a response. The kernel reports progress in thirds of the send buffer, so this
/// is also a minimum rate of a few KiB/s.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// The socket of one connection.
pub(super) struct Wire {
    stream: TcpStream,
    state: Arc<State>,
    /// Runs while a write is blocked.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Whether the connection ends in order, so that the kernel may deliver the rest of the response.
    is_shut_down: bool,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, state: Arc<State>) -> Self {
        Self { stream, state, deadline: None, is_shut_down: false }
    }

    /// Applies the timeout to the result of a write.
    fn within_timeout<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            self.state.waits_to_write(false);
            return written;
        }
        self.state.waits_to_write(true);
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(WRITE_TIMEOUT)));
        ready!(deadline.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.within_timeout(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.within_timeout(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.is_shut_down = true;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if !self.is_shut_down {
            // The kernel would keep an unread response for minutes.
            let _ = self.stream.set_zero_linger();
        }
    }
}

/// A request body that marks the connection as waiting for its client.
pub(super) struct RequestBody {
    body: Incoming,
    state: Arc<State>,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, state: Arc<State>) -> Self {
        Self { body, state }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        // A client that sends one byte at a time counts as waiting all the time.
        match &frame {
            Poll::Pending => self.state.waits_to_read(true),
            Poll::Ready(_) if self.body.is_end_stream() => self.state.waits_to_read(false),
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(_) => self.state.waits_to_read(false),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A response body. When it ends, the connection waits for the next request.
pub(super) struct ResponseBody {
    body: Body,
    state: Arc<State>,
}

impl ResponseBody {
    pub(super) fn new(body: Body, state: Arc<State>) -> Self {
        Self { body, state }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.state.response_ended();
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
