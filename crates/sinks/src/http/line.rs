//! One request and its whole answer, or a fault. The one thing that it must get right is the boundary between a
//! request that cannot have left and one that may have.
//!
//! Before: the name was not found, its addresses are refused, nobody listens, the connection or the TLS handshake
//! failed or took too long. None of these has written a byte of the request: the client tells them apart by the step
//! at which they happen, not by their text. After: everything else, whatever it looks like.

use std::error::Error;
use std::time::{Duration, SystemTime};

use reqwest::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Request, Response};
use symphony_relay::trace;

use super::address::Allowed;
use super::json::{self, Body};
use super::reply::Reply;
use super::resolver::Filtered;
use super::retry_after;
use crate::config::Problem;
use crate::tls;

/// Names the span on whose behalf a request leaves.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Fault {
    /// No byte of the request has left.
    NotSent(String),
    /// The request may have arrived.
    MayHaveBeenSent(String),
}

/// How long and how large things may become.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    /// How long a connection is kept for the next request; none is kept without it.
    pub(super) idle_timeout: Option<Duration>,
    pub(super) idle_connections: usize,
    pub(super) answer_limit: usize,
    pub(super) retry_after_cap: Duration,
}

/// A client that sends once.
pub(super) struct Line {
    client: Client,
    keeps_connections: bool,
    timeout: Duration,
    answer_limit: usize,
    retry_after_cap: Duration,
}

impl Line {
    /// `https` says whether any request will use TLS.
    pub(super) fn new(
        limits: Limits,
        files: tls::Files<'_>,
        allowed: Allowed,
        https: bool,
    ) -> Result<Self, Problem> {
        // Without a pool no request can meet a connection that died while it lay idle.
        let idle = if limits.idle_timeout.is_some() { limits.idle_connections } else { 0 };
        let mut tls = tls::client(files, https)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Filtered(allowed))
            .user_agent(concat!("symphony/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .referer(false)
            .retry(reqwest::retry::never())
            .no_proxy()
            .http1_only()
            .connect_timeout(limits.connect_timeout)
            .pool_max_idle_per_host(idle)
            .pool_idle_timeout(limits.idle_timeout)
            .tcp_nodelay(true)
            .build()
            .map_err(|error| Problem::new("url", "no client can be made for it").because(error.without_url()))?;
        Ok(Self {
            client,
            keeps_connections: limits.idle_timeout.is_some(),
            timeout: limits.timeout,
            answer_limit: limits.answer_limit,
            retry_after_cap: limits.retry_after_cap,
        })
    }

    /// How long one request and its answer may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(super) async fn exchange(&self, mut request: Request) -> Result<Reply, Fault> {
        if !self.keeps_connections {
            // Else the server waits for a second request, and the closed connection lingers on our side.
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(value) = trace::current().and_then(|span| HeaderValue::from_str(&span.to_string()).ok()) {
            request.headers_mut().insert(TRACEPARENT, value);
        }
        // The connection has a shorter limit of its own, so that what runs into this one had its connection.
        match tokio::time::timeout(self.timeout, self.send_and_read(request)).await {
            Ok(result) => result,
            Err(_) => Err(Fault::MayHaveBeenSent(format!("no whole answer within {:?}", self.timeout))),
        }
    }

    async fn send_and_read(&self, request: Request) -> Result<Reply, Fault> {
        let response = self.client.execute(request).await.map_err(|error| {
            let before = error.is_connect() || error.is_builder();
            let text = innermost(&error.without_url());
            if before { Fault::NotSent(text) } else { Fault::MayHaveBeenSent(text) }
        })?;
        let status = response.status().as_u16();
        let retry_after = retry_after::delay(response.headers(), SystemTime::now(), self.retry_after_cap);
        let body = self.read(response).await?;
        let (body, ambiguous) = match json::read(&body) {
            Body::Object(object) => (Some(object), false),
            Body::Ambiguous => (None, true),
            Body::Other => (None, false),
        };
        Ok(Reply { status, retry_after, body, ambiguous })
    }

    /// The body, if it ends and fits.
    async fn read(&self, mut response: Response) -> Result<Vec<u8>, Fault> {
        let status = response.status().as_u16();
        let too_long = || {
            let limit = self.answer_limit;
            Fault::MayHaveBeenSent(format!(
                "the answer, HTTP {status}, is longer than {limit} bytes (answer_limit_bytes)"
            ))
        };
        let announced =
            response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.answer_limit as u64) {
            return Err(too_long());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| {
            let text = innermost(&error.without_url());
            Fault::MayHaveBeenSent(format!("the answer, HTTP {status}, broke off: {text}"))
        })? {
            if body.len() + chunk.len() > self.answer_limit {
                return Err(too_long());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// The error at the bottom, which says what happened; those above only say that something did.
fn innermost(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(source) = below {
        text = source.to_string();
        below = source.source();
    }
    // Parts of it may come from the other side, such as names in its certificate.
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect()
}
