//! A collector that takes spans by OTLP over HTTP, refuses them, or never answers; and a bank that remembers whose spans it was asked by.

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
use opentelemetry_proto::tonic::trace::v1::Span as Wired;
use prost::Message as _;
use symphony_proof::kit::wait::{BOUND, until};
use tokio::net::TcpListener;

/// What a server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Answer(u16),
    /// Reads it, and says nothing for as long as the test runs.
    Stall,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Request {
    /// A header; empty where there is none.
    pub(crate) fn header(&self, name: &str) -> String {
        self.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    }
}

/// A server that remembers what it was asked.
#[derive(Clone)]
pub(crate) struct Receiver {
    address: SocketAddr,
    shared: Arc<Mutex<(Manner, Vec<Request>)>>,
}

/// A span as it arrived; ids in hexadecimal digits.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace_id: String,
    pub(crate) span_id: String,
    /// Empty where it has none.
    pub(crate) parent_id: String,
    pub(crate) name: String,
    pub(crate) kind: i32,
    pub(crate) failed: bool,
    /// The trace and the span of each.
    pub(crate) links: Vec<(String, String)>,
    pub(crate) attributes: BTreeMap<String, String>,
    /// Of the process that it comes from.
    pub(crate) resource: BTreeMap<String, String>,
}

impl Receiver {
    /// Starts one that takes everything.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Mutex::new((Manner::Answer(200), Vec::new())));
        let receiver = Self { address, shared };
        let routes = Router::new().fallback(any(take)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        receiver
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn behave(&self, manner: Manner) {
        self.shared.lock().unwrap().0 = manner;
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.lock().unwrap().1.clone()
    }

    /// The section of settings that leads here.
    pub(crate) fn traces(&self, more: &str) -> String {
        format!("[traces]\nendpoint = 'http://{}/v1/traces'\nallow_plain = true\n{more}\n", self.address)
    }

    /// Every span that was sent here.
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
            let wired = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(wired.map(|span| Span::read(span, &resource)));
        }
        spans
    }

    /// Waits until there are so many spans of rows, and gives all that there are.
    pub(crate) async fn has_spans(&self, count: usize) -> Vec<Span> {
        let so = async || self.spans().len() >= count;
        until(format!("{count} spans have arrived"), BOUND, so).await.unwrap();
        self.spans()
    }

    /// Waits until there are so many requests.
    pub(crate) async fn has_requests(&self, count: usize) -> Vec<Request> {
        let so = async || self.requests().len() >= count;
        until(format!("{count} requests have arrived"), BOUND, so).await.unwrap();
        self.requests()
    }
}

async fn take(
    State(receiver): State<Receiver>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, &'static str) {
    let manner = {
        let mut shared = receiver.shared.lock().unwrap();
        shared.1.push(Request { path: uri.path().to_owned(), headers, body });
        shared.0
    };
    match manner {
        // A bank says so in JSON; a collector's answer is not read.
        Manner::Answer(status) => (StatusCode::from_u16(status).unwrap(), "{}"),
        Manner::Stall => std::future::pending().await,
    }
}

impl Span {
    fn read(span: Wired, resource: &BTreeMap<String, String>) -> Self {
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

    /// What a request carries that leaves on its behalf.
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
