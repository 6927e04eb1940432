//! Sends one HTTP request once, and reads the whole response or reports whether the request can have left.
//!
//! That boundary decides whether a payment may be sent again. Not sent: DNS found no address or only refused ones, the
//! port is closed, or the connection or TLS handshake failed or timed out. None of these has written a byte of the
//! request; the client tells them apart by the step that failed, not by the text of the error. Every other error means
//! that the request may have arrived.

use std::time::{Duration, SystemTime};

use reqwest::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Request, Response};
use symphony_relay::trace;

use super::address::Allowed;
use super::json::{self, Body};
use super::reloadable::Reloadable;
use super::resolver::FilteredResolver;
use super::response::{HttpResponse, is_replay};
use super::retry_after;
use crate::config::SettingError;
use crate::error_text::root_cause;
use crate::tls;

/// Propagates the span of the dispatch, as W3C Trace Context defines.
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Why there is no response.
#[derive(Debug)]
pub(super) enum SendError {
    /// No byte of the request has left.
    NotSent(String),
    /// The request may have arrived.
    MayHaveBeenSent(String),
}

/// The limits of a request and its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    /// How long an idle connection is kept for the next request. Without it, every request has its own connection.
    pub(super) idle_timeout: Option<Duration>,
    pub(super) idle_connections: usize,
    pub(super) max_response_bytes: usize,
    pub(super) retry_after_cap: Duration,
}

/// An HTTP client that never retries, redirects or uses a proxy.
pub(super) struct HttpClient {
    /// Follows the files of certificates and keys.
    inner: Reloadable<Client>,
    keeps_connections: bool,
    timeout: Duration,
    max_response_bytes: usize,
    retry_after_cap: Duration,
}

impl HttpClient {
    /// Builds a client. `owner` is whose it is, for the log; `https` says whether any request will use TLS.
    pub(super) fn new(
        owner: &str,
        limits: Limits,
        files: tls::TlsFiles,
        allowed: Allowed,
        https: bool,
    ) -> Result<Self, SettingError> {
        let inner = Reloadable::new(owner, files.paths(), move || build(limits, &files, &allowed, https))?;
        Ok(Self {
            inner,
            keeps_connections: limits.idle_timeout.is_some(),
            timeout: limits.timeout,
            max_response_bytes: limits.max_response_bytes,
            retry_after_cap: limits.retry_after_cap,
        })
    }

    /// The limit for one request and its response.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends a request once and reads the whole response.
    pub(super) async fn send(&self, mut request: Request) -> Result<HttpResponse, SendError> {
        if !self.keeps_connections {
            // Otherwise the server waits for a second request, and the closed connection lingers on our side.
            request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(value) = trace::current().and_then(|span| HeaderValue::from_str(&span.to_string()).ok()) {
            request.headers_mut().insert(TRACEPARENT, value);
        }
        // connect_timeout is shorter, so a request that runs into this limit had its connection.
        match tokio::time::timeout(self.timeout, self.send_and_read(request)).await {
            Ok(result) => result,
            Err(_) => Err(SendError::MayHaveBeenSent(format!(
                "no complete response within {:?} (timeout)",
                self.timeout
            ))),
        }
    }

    async fn send_and_read(&self, request: Request) -> Result<HttpResponse, SendError> {
        let response = self.inner.current().execute(request).await.map_err(|error| {
            let not_sent = error.is_connect() || error.is_builder();
            let text = root_cause(&error.without_url());
            if not_sent { SendError::NotSent(text) } else { SendError::MayHaveBeenSent(text) }
        })?;
        let status = response.status().as_u16();
        let is_replay = is_replay(response.headers());
        let retry_after = retry_after::delay(response.headers(), SystemTime::now(), self.retry_after_cap);
        let body = self.read(response).await?;
        let (body, ambiguous) = match json::read(&body) {
            Body::Object(object) => (Some(object), false),
            Body::Ambiguous => (None, true),
            Body::Other => (None, false),
        };
        Ok(HttpResponse { status, retry_after, body, ambiguous, is_replay })
    }

    /// The body, if it is complete and within the limit.
    async fn read(&self, mut response: Response) -> Result<Vec<u8>, SendError> {
        let status = response.status().as_u16();
        let too_long = || {
            let limit = self.max_response_bytes;
            SendError::MayHaveBeenSent(format!(
                "the response, HTTP {status}, is longer than {limit} bytes (answer_limit_bytes)"
            ))
        };
        let announced =
            response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > self.max_response_bytes as u64) {
            return Err(too_long());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| {
            let text = root_cause(&error.without_url());
            SendError::MayHaveBeenSent(format!("the response, HTTP {status}, was cut off: {text}"))
        })? {
            if body.len() + chunk.len() > self.max_response_bytes {
                return Err(too_long());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

fn build(limits: Limits, files: &tls::TlsFiles, allowed: &Allowed, https: bool) -> Result<Client, SettingError> {
    // Without a pool, no request can meet a connection that the server closed while it was idle.
    let idle = if limits.idle_timeout.is_some() { limits.idle_connections } else { 0 };
    let mut tls = tls::client_config(files, https)?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(FilteredResolver(allowed.clone()))
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
        .map_err(|error| {
            SettingError::new("url", "no HTTP client can be created for it").with_source(error.without_url())
        })
}
