//! A receiver of CloudEvents that verifies signatures with an independent library.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use percent_encoding::percent_decode_str;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::certificate_authority::CertificateAuthority;
use crate::fixture::{DESTINATION, Files, ReceivedEvent, SinkFixture, event, sink_to};

pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub(crate) const OTHER_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

#[derive(Clone)]
struct Inbox {
    all: Arc<Mutex<Vec<ReceivedEvent>>>,
    paused: watch::Sender<bool>,
}

pub(crate) struct Http {
    server: Server,
    inbox: Inbox,
}

impl SinkFixture for Http {
    const DEDUPLICATES: bool = false;
    const REFUSED_DESTINATION: &'static str = "nowhere";

    async fn start(tls: Option<&CertificateAuthority>) -> Option<Self> {
        let inbox = Inbox { all: Arc::default(), paused: watch::channel(false).0 };
        let router = Router::new().route("/in/{*destination}", post(receive)).with_state(inbox.clone());
        Some(Self { server: Server::start(router, tls).await, inbox })
    }

    fn settings(&self) -> String {
        let base = self.server.url();
        format!("kind = 'http'\nurl = '{base}/in/{{destination}}'\nallow_private = ['localhost']")
    }

    fn password_setting(&self) -> Option<&'static str> {
        Some("secret_file")
    }

    fn passwords(&self) -> [&'static str; 2] {
        [SECRET, OTHER_SECRET]
    }

    async fn read(&self) -> Vec<ReceivedEvent> {
        self.inbox.all.lock().unwrap().clone()
    }

    async fn kill(&mut self) {
        self.server.kill().await;
    }

    async fn restart(&mut self) {
        self.server.restart().await;
    }

    fn pause(&mut self) {
        self.inbox.paused.send_replace(true);
    }

    fn resume(&mut self) {
        self.inbox.paused.send_replace(false);
    }
}

/// An HTTP(S) server that can be killed and restarted.
pub(crate) struct Server {
    address: SocketAddr,
    router: Router,
    tls: Option<TlsAcceptor>,
    running: JoinSet<()>,
}

impl Server {
    pub(crate) async fn start(router: Router, tls: Option<&CertificateAuthority>) -> Self {
        let tls = tls.map(|authority| {
            let (certificate, key) = authority.issue("localhost");
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = rustls::ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                .unwrap();
            TlsAcceptor::from(Arc::new(config))
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut server = Self { address: listener.local_addr().unwrap(), router, tls, running: JoinSet::new() };
        server.serve(listener);
        server
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://localhost:{}", self.address.port())
    }

    pub(crate) async fn kill(&mut self) {
        self.running.shutdown().await;
    }

    pub(crate) async fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.serve(listener);
    }

    fn serve(&mut self, listener: TcpListener) {
        let (tls, router) = (self.tls.clone(), self.router.clone());
        self.running.spawn(async move {
            // In a JoinSet, so that the connections end with the server.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve_connection(stream, tls.clone(), router.clone()));
            }
        });
    }
}

async fn serve_connection(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router) {
    let service = hyper_util::service::TowerToHyperService::new(router);
    let builder = hyper::server::conn::http1::Builder::new();
    let _ = match tls {
        Some(tls) => {
            let Ok(stream) = tls.accept(stream).await else { return };
            builder.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await
        }
        None => builder.serve_connection(hyper_util::rt::TokioIo::new(stream), service).await,
    };
}

async fn receive(
    State(inbox): State<Inbox>,
    Path(destination): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let mut paused = inbox.paused.subscribe();
    let _ = paused.wait_for(|paused| !paused).await;
    if standardwebhooks::Webhook::new(SECRET).unwrap().verify(&body, &headers).is_err() {
        return StatusCode::UNAUTHORIZED;
    }
    if destination != DESTINATION {
        return StatusCode::NOT_FOUND;
    }
    let body = String::from_utf8(body.to_vec()).unwrap();
    let event = match headers["content-type"].to_str().unwrap() {
        "application/json" => binary_event(&headers, body),
        "application/cloudevents+json; charset=UTF-8" => structured_event(&body),
        other => panic!("{other}"),
    };
    assert_eq!(headers["webhook-id"].to_str().unwrap(), event.id);
    inbox.all.lock().unwrap().push(event);
    StatusCode::ACCEPTED
}

fn binary_event(headers: &HeaderMap, data: String) -> ReceivedEvent {
    let header = |name: &str| {
        let value = headers[format!("ce-{name}")].to_str().unwrap();
        percent_decode_str(value).decode_utf8().unwrap().into_owned()
    };
    assert_eq!(header("specversion"), "1.0");
    ReceivedEvent {
        id: header("id"),
        source: header("source"),
        event_type: header("type"),
        subject: header("subject"),
        key: header("partitionkey"),
        data,
        traceparent: headers.get("traceparent").map(|value| value.to_str().unwrap().to_owned()),
    }
}

fn structured_event(body: &str) -> ReceivedEvent {
    let event: serde_json::Value = serde_json::from_str(body).unwrap();
    let text = |name: &str| event[name].as_str().unwrap().to_owned();
    assert_eq!((text("specversion").as_str(), text("datacontenttype").as_str()), ("1.0", "application/json"));
    ReceivedEvent {
        id: text("id"),
        source: text("source"),
        event_type: text("type"),
        subject: text("subject"),
        key: text("partitionkey"),
        data: event["data"].to_string(),
        traceparent: None,
    }
}

#[tokio::test]
async fn a_structured_event_arrives_whole() {
    let fixture = Http::start(None).await.unwrap();
    let sink = sink_to(&fixture, &Files::new(), "mode = 'structured'");
    let mut message = event("1", "\u{20ac}");
    message.data = r#"{"a":[1,"x"]}"#.to_owned();
    let outcome = sink.publish(&message).await;
    assert_eq!(outcome, symphony_relay::sink::Published::Confirmed { repeat: false });
    assert_eq!(fixture.read().await, [crate::fixture::received(&message)]);
}
