//! HTTP responses, and the faults that keep them from arriving.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use serde::Serialize;
use tokio::sync::mpsc;

use super::{
    fault::Fault,
    key_store::{Decision, LedgerEntry},
    ledger_file::LedgerFile,
    request_handler::{Handled, LedgerBroken},
    wire::{IDEMPOTENT_REPLAY, Problem, Status},
};

/// A fault that sends no response. It is attached to a placeholder response for the connection to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoResponse {
    /// Close the connection.
    Cut,
    /// Keep the connection open and send nothing.
    Hold,
}

impl NoResponse {
    fn response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A connection that a fault closed during a request.
#[derive(Debug)]
pub(super) struct ConnectionCut;

impl fmt::Display for ConnectionCut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("closed by an injected fault")
    }
}

impl std::error::Error for ConnectionCut {}

/// A JSON response.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        // Responses have only texts and numbers, so JSON can hold them.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// An error response with its code.
pub(super) fn problem(status: StatusCode, code: &'static str, message: Option<String>) -> Response {
    json(status, &Problem { code, message })
}

/// The response to a payment or an inquiry, changed by its fault.
pub(super) fn respond(handled: Result<Handled, LedgerBroken>) -> Response {
    // A decision that is not durable must not be sent.
    let Ok(Handled { fault, decision, retry_after }) = handled else { return NoResponse::Cut.response() };
    let later = |status, code| {
        let mut response = problem(status, code, None);
        response.headers_mut().insert(header::RETRY_AFTER, retry_after.as_secs().into());
        response
    };
    match fault {
        Fault::TimeoutBefore | Fault::TimeoutAfter => NoResponse::Hold.response(),
        Fault::CutBefore | Fault::CutAfter => NoResponse::Cut.response(),
        Fault::Error500Before | Fault::Error500After => {
            problem(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", None)
        }
        Fault::Busy => later(StatusCode::SERVICE_UNAVAILABLE, "BUSY"),
        Fault::RateLimit => later(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED"),
        Fault::InquiryDown => later(StatusCode::SERVICE_UNAVAILABLE, "INQUIRY_DOWN"),
        Fault::HalfAnswer => truncate(payment(decision)),
        Fault::Ok | Fault::Refuse | Fault::Accept | Fault::AcceptRefuse => payment(decision),
        Fault::InquiryOk => inquiry(decision),
    }
}

fn payment(decision: Decision) -> Response {
    let (status, replay) = match decision {
        Decision::Status { status, replay } => (status, replay),
        Decision::KeyReused => {
            let message = "this key was used for another payment".to_owned();
            return problem(StatusCode::UNPROCESSABLE_ENTITY, "KEY_REUSED", Some(message));
        }
        // A fault that comes first has ended the request already.
        Decision::Nothing => return NoResponse::Cut.response(),
    };
    let code = match (&status, replay) {
        (Status::Executed { .. }, false) => StatusCode::CREATED,
        (Status::Executed { .. }, true) => StatusCode::OK,
        (Status::Refused { .. }, _) => StatusCode::UNPROCESSABLE_ENTITY,
        (Status::Pending, _) => StatusCode::ACCEPTED,
        (Status::UnknownKey, _) => StatusCode::NOT_FOUND,
    };
    let mut response = json(code, &status);
    if replay {
        let name = HeaderName::from_static(IDEMPOTENT_REPLAY);
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    response
}

fn inquiry(decision: Decision) -> Response {
    match decision {
        Decision::Status { status: Status::UnknownKey, .. } => json(StatusCode::NOT_FOUND, &Status::UnknownKey),
        Decision::Status { status, .. } => json(StatusCode::OK, &status),
        Decision::KeyReused | Decision::Nothing => NoResponse::Cut.response(),
    }
}

/// The same response with half of its body.
fn truncate(response: Response) -> Response {
    let (parts, body) = response.into_parts();
    Response::from_parts(parts, Body::new(TruncatedBody { whole: body, sent: false, shown: false }))
}

/// TruncatedBody of a body, then the end of the connection.
struct TruncatedBody {
    whole: Body,
    sent: bool,
    /// Whether the connection was polled once more, to send what it has.
    shown: bool,
}

impl HttpBody for TruncatedBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if self.sent {
            if self.shown {
                return Poll::Ready(Some(Err(ConnectionCut.into())));
            }
            self.shown = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.sent = true;
        Pin::new(&mut self.whole).poll_frame(context).map(|frame| {
            frame.map(|frame| {
                frame.map_err(Into::into).map(|frame| frame.map_data(|data| data.slice(..data.len() / 2)))
            })
        })
    }

    fn size_hint(&self) -> SizeHint {
        // Content-Length is that of the whole body.
        self.whole.size_hint()
    }
}

/// NDJSON of the durable entries, mapped by `pick`.
pub(super) fn stream_entries<T: Serialize + 'static>(
    ledger: &LedgerFile,
    pick: fn(LedgerEntry) -> Option<T>,
) -> Response {
    let (sender, receiver) = mpsc::channel(4);
    let reader = ledger.reader();
    // Reading a file blocks, so it runs on its own thread. It ends when the client disconnects.
    tokio::task::spawn_blocking(move || {
        if let Err(error) = list(reader, pick, &sender) {
            let _ = sender.blocking_send(Err(error));
        }
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::new(ChannelBody(receiver))).into_response()
}

fn list<T: Serialize>(
    mut reader: impl io::BufRead,
    pick: fn(LedgerEntry) -> Option<T>,
    sender: &mpsc::Sender<io::Result<Bytes>>,
) -> io::Result<()> {
    let mut chunk = Vec::new();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        if read > 0
            && let Some(picked) = pick(serde_json::from_slice(&line)?)
        {
            serde_json::to_writer(&mut chunk, &picked)?;
            chunk.push(b'\n');
        }
        let last = read == 0;
        if last || chunk.len() > 32 * 1024 {
            let gone = sender.blocking_send(Ok(std::mem::take(&mut chunk).into())).is_err();
            if last || gone {
                return Ok(());
            }
        }
    }
}

/// A body that is read from a channel.
struct ChannelBody(mpsc::Receiver<io::Result<Bytes>>);

impl HttpBody for ChannelBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|part| part.map(|part| part.map(Frame::data)))
    }
}
