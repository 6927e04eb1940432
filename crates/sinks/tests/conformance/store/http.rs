//! A receiver that compares versions, as docs/sinks/metadata-http.md requires, and verifies signatures with an
//! independent library.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{self, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::put;
use symphony_relay::store::Written;
use tokio::sync::watch;

use super::fixture::{REFUSED_TYPE, StoreFixture, StoredRecord, customer, store_for};
use crate::certificate_authority::CertificateAuthority;
use crate::fixture::Files;
use crate::http::{OTHER_SECRET, SECRET, Server};

#[derive(Clone)]
struct Records {
    all: Arc<Mutex<BTreeMap<(String, String), StoredRecord>>>,
    paused: watch::Sender<bool>,
}

pub(crate) struct Http {
    server: Server,
    records: Records,
}

impl StoreFixture for Http {
    const ACCEPTS_DOT_IDS: bool = false;
    const PASSWORD_SETTING: &'static str = "secret_file";
    const PASSWORDS: [&'static str; 2] = [SECRET, OTHER_SECRET];

    async fn start(tls: Option<&CertificateAuthority>) -> Option<Self> {
        let records = Records { all: Arc::default(), paused: watch::channel(false).0 };
        let router =
            Router::new().route("/v1/{entity_type}/{entity_id}", put(receive)).with_state(records.clone());
        Some(Self { server: Server::start(router, tls).await, records })
    }

    fn settings(&self, root: Option<&Path>) -> String {
        let trust = root.map(|root| format!("root_ca_file = {root:?}\nsystem_roots = false")).unwrap_or_default();
        let base = self.server.url();
        format!(
            "kind = 'http'\nurl = '{base}/v1/{{entity_type}}/{{entity_id}}'\nallow_private = ['localhost']\n{trust}"
        )
    }

    async fn read(&self, entity_type: &str, entity_id: &str) -> Option<StoredRecord> {
        self.records.all.lock().unwrap().get(&(entity_type.to_owned(), entity_id.to_owned())).cloned()
    }

    async fn count(&self) -> usize {
        self.records.all.lock().unwrap().len()
    }

    async fn kill(&mut self) {
        self.server.kill().await;
    }

    async fn restart(&mut self) {
        self.server.restart().await;
    }

    async fn pause(&mut self) {
        self.records.paused.send_replace(true);
    }

    async fn resume(&mut self) {
        self.records.paused.send_replace(false);
    }
}

async fn receive(
    State(records): State<Records>,
    extract::Path((entity_type, entity_id)): extract::Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let mut paused = records.paused.subscribe();
    let _ = paused.wait_for(|paused| !paused).await;
    if standardwebhooks::Webhook::new(SECRET).unwrap().verify(&body, &headers).is_err() {
        return StatusCode::UNAUTHORIZED;
    }
    if entity_type == REFUSED_TYPE {
        return StatusCode::UNPROCESSABLE_ENTITY;
    }
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/json");
    let entry_id = header("symphony-entry-id");
    assert_eq!([header("idempotency-key"), header("webhook-id")], [entry_id.clone(), entry_id.clone()]);
    let version = header("symphony-version").parse().unwrap();
    let record = StoredRecord { version, entry_id, metadata: String::from_utf8(body.to_vec()).unwrap() };
    let mut all = records.all.lock().unwrap();
    match all.get(&(entity_type.clone(), entity_id.clone())) {
        Some(stored) if stored.version > version => StatusCode::CONFLICT,
        Some(stored) if stored.version == version => StatusCode::OK,
        _ => {
            all.insert((entity_type, entity_id), record);
            StatusCode::CREATED
        }
    }
}

/// The page lists every status. This test tells a retryable status from a refusal.
#[tokio::test]
async fn a_status_decides_whether_to_retry() {
    for (status, retryable) in [(503, true), (429, true), (302, true), (404, false), (400, false)] {
        let status = StatusCode::from_u16(status).unwrap();
        let router = Router::new().fallback(move || async move { status });
        let fixture = Http {
            server: Server::start(router, None).await,
            records: Records { all: Arc::default(), paused: watch::channel(false).0 },
        };
        let outcome = store_for(&fixture, &Files::new(), "timeout = '60s'").write(&customer("1", 1)).await;
        match outcome {
            Written::Failed(why) if retryable => assert!(why.contains(status.as_str()), "{why}"),
            Written::Refused(why) if !retryable => assert!(why.contains(status.as_str()), "{why}"),
            other => panic!("{status}: {other:?}"),
        }
    }
}
