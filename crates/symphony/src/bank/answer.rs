//! Answers, and the ways in which they fail to arrive.

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
    book::{Entry, Verdict},
    desk::{Broken, Dealt},
    fault::Fault,
    journal::Journal,
    wire::{IDEMPOTENT_REPLAY, Problem, Status},
};

/// Instead of an answer. It goes with a response that nobody will see, for the connection to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// The connection is closed.
    Cut,
    /// Nothing is said while the other side listens.
    Hold,
}

impl Silence {
    fn response(self) -> Response {
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// A connection that ends in the middle of a request, as ordered.
#[derive(Debug)]
pub(super) struct Severed;

impl fmt::Display for Severed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("closed as ordered")
    }
}

impl std::error::Error for Severed {}

/// JSON with a status.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        // What is answered here is made of texts and numbers, which JSON always takes.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// A problem with its code.
pub(super) fn problem(status: StatusCode, code: &'static str, message: Option<String>) -> Response {
    json(status, &Problem { code, message })
}

/// The answer to a payment or an inquiry, through its fault.
pub(super) fn dealt(dealt: Result<Dealt, Broken>) -> Response {
    // What could not be written down may not be told either.
    let Ok(Dealt { fault, verdict, retry_after }) = dealt else { return Silence::Cut.response() };
    let later = |status, code| {
        let mut response = problem(status, code, None);
        response.headers_mut().insert(header::RETRY_AFTER, retry_after.as_secs().into());
        response
    };
    match fault {
        Fault::TimeoutBefore | Fault::TimeoutAfter => Silence::Hold.response(),
        Fault::CutBefore | Fault::CutAfter => Silence::Cut.response(),
        Fault::Error500Before | Fault::Error500After => {
            problem(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR", None)
        }
        Fault::Busy => later(StatusCode::SERVICE_UNAVAILABLE, "BUSY"),
        Fault::RateLimit => later(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED"),
        Fault::InquiryDown => later(StatusCode::SERVICE_UNAVAILABLE, "INQUIRY_DOWN"),
        Fault::HalfAnswer => half(payment(verdict)),
        Fault::Ok | Fault::Refuse => payment(verdict),
        Fault::InquiryOk => inquiry(verdict),
    }
}

fn payment(verdict: Verdict) -> Response {
    let (status, replay) = match verdict {
        Verdict::Status { status, replay } => (status, replay),
        Verdict::KeyReused => {
            let message = "this key was used for another payment".to_owned();
            return problem(StatusCode::CONFLICT, "KEY_REUSED", Some(message));
        }
        // Faults that come first have said it all.
        Verdict::Nothing => return Silence::Cut.response(),
    };
    let code = match (&status, replay) {
        (Status::Executed { .. }, false) => StatusCode::CREATED,
        (Status::Executed { .. }, true) => StatusCode::OK,
        (Status::Refused { .. }, _) => StatusCode::UNPROCESSABLE_ENTITY,
        (Status::UnknownKey, _) => StatusCode::NOT_FOUND,
    };
    let mut response = json(code, &status);
    if replay {
        let name = HeaderName::from_static(IDEMPOTENT_REPLAY);
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    response
}

fn inquiry(verdict: Verdict) -> Response {
    match verdict {
        Verdict::Status { status: Status::UnknownKey, .. } => json(StatusCode::NOT_FOUND, &Status::UnknownKey),
        Verdict::Status { status, .. } => json(StatusCode::OK, &status),
        Verdict::KeyReused | Verdict::Nothing => Silence::Cut.response(),
    }
}

/// The same answer, of which half of the body arrives.
fn half(response: Response) -> Response {
    let (parts, body) = response.into_parts();
    Response::from_parts(parts, Body::new(Half { whole: body, sent: false, shown: false }))
}

/// Half of a body, then the end of the connection.
struct Half {
    whole: Body,
    sent: bool,
    /// Whether the connection had a turn to send what it has.
    shown: bool,
}

impl HttpBody for Half {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if self.sent {
            if self.shown {
                return Poll::Ready(Some(Err(Severed.into())));
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
        // The length that is announced is that of the whole.
        self.whole.size_hint()
    }
}

/// JSON lines of what is durable by now: what `pick` makes of each entry.
pub(super) fn listing<T: Serialize + 'static>(journal: &Journal, pick: fn(Entry) -> Option<T>) -> Response {
    let (sender, receiver) = mpsc::channel(4);
    let reader = journal.reader();
    // The runtime lets a file be read on a thread of its own; it ends when nobody listens any more.
    tokio::task::spawn_blocking(move || {
        if let Err(error) = list(reader, pick, &sender) {
            let _ = sender.blocking_send(Err(error));
        }
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::new(Lines(receiver))).into_response()
}

fn list<T: Serialize>(
    mut reader: impl io::BufRead,
    pick: fn(Entry) -> Option<T>,
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

/// A body that comes in parts.
struct Lines(mpsc::Receiver<io::Result<Bytes>>);

impl HttpBody for Lines {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|part| part.map(|part| part.map(Frame::data)))
    }
}
