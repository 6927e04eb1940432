//! A fake HTTP server that records every request: an OTLP collector, a bank or a webhook, as the test needs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::routing::any;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span as OtlpSpan;
use prost::Message as _;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio::net::TcpListener;

/// How the server responds to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    Status(u16),
    /// Never responds.
    Hang,
}

/// A recorded request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Request {
    /// The value of a header; empty if it is missing.
    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    }
}

/// A server that records its requests.
#[derive(Clone)]
pub(crate) struct RecordingServer {
    address: SocketAddr,
    shared: Arc<Mutex<(Response, Vec<Request>)>>,
}

/// A received span; its ids are hexadecimal.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
    /// Empty for a root span.
    pub(crate) parent_id: String,
    pub(crate) name: String,
    pub(crate) kind: i32,
    pub(crate) failed: bool,
    /// Trace id and span id of each link.
    pub(crate) links: Vec<(String, String)>,
    pub(crate) attributes: BTreeMap<String, String>,
    /// The resource attributes of the process that sent it.
    pub(crate) resource: BTreeMap<String, String>,
}

impl RecordingServer {
    /// Starts one that responds to everything with 200.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Mutex::new((Response::Status(200), Vec::new())));
        let server = Self { address, shared };
        let routes = Router::new().fallback(any(record)).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn respond_with(&self, response: Response) {
        self.shared.lock().unwrap().0 = response;
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.lock().unwrap().1.clone()
    }

    /// The `[traces]` section of settings that export to this server.
    pub(crate) fn traces_section(&self, extra: &str) -> String {
        format!("[traces]\nendpoint = 'http://{}/v1/traces'\nallow_plain = true\n{extra}\n", self.address)
    }

    /// Every span that it has received.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let decoded = |request: Request| {
            assert_eq!(
                (request.path.as_str(), &*request.header("content-type")),
                ("/v1/traces", "application/x-protobuf")
            );
            ExportTraceServiceRequest::decode(request.body).unwrap()
        };
        let mut spans = Vec::new();
        for of_resource in self.requests().into_iter().map(decoded).flat_map(|batch| batch.resource_spans) {
            let resource = read(&of_resource.resource.unwrap().attributes);
            let otlp_spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(otlp_spans.map(|span| Span::read(span, &resource)));
        }
        spans
    }

    /// Waits for at least this many spans, and returns all.
    pub(crate) async fn wait_for_spans(&self, count: usize) -> Vec<Span> {
        let condition = async || self.spans().len() >= count;
        until(format!("{count} spans have arrived"), DEFAULT_TIMEOUT, condition).await.unwrap();
        self.spans()
    }

    /// Waits for at least this many requests, and returns all.
    pub(crate) async fn wait_for_requests(&self, count: usize) -> Vec<Request> {
        let condition = async || self.requests().len() >= count;
        until(format!("{count} requests have arrived"), DEFAULT_TIMEOUT, condition).await.unwrap();
        self.requests()
    }
}

async fn record(
    State(server): State<RecordingServer>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    let response = {
        let mut shared = server.shared.lock().unwrap();
        shared.1.push(Request { path: uri.path().to_owned(), headers, body });
        shared.0
    };
    match response {
        // The relayer parses a bank's body as JSON; it does not read a collector's.
        Response::Status(status) => (StatusCode::from_u16(status).unwrap(), "{}"),
        Response::Hang => std::future::pending().await,
    }
}

impl Span {
    fn read(span: OtlpSpan, resource: &BTreeMap<String, String>) -> Self {
        Self {
            trace_id: hex(&span.trace_id),
            span_id: hex(&span.span_id),
            parent_id: hex(&span.parent_span_id),
            name: span.name,
            kind: span.kind,
            failed: span.status.is_some_and(|status| status.code == 2),
            links: span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect(),
            attributes: read(&span.attributes),
            resource: resource.clone(),
        }
    }

    pub(crate) fn attribute(&self, name: &str) -> &str {
        self.attributes.get(name).map(String::as_str).unwrap_or_default()
    }

    /// The `traceparent` header of a request that belongs to this span.
    pub(crate) fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace_id, self.span_id)
    }
}

fn read(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &Option<AnyValue>| match value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?} is neither a text nor a number"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), text(&attribute.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
