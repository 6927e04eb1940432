//! OAuth client credentials against a real token endpoint and a bank that checks the tokens.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use symphony_relay::rail::{Answer, Inquiry, Rail};
use tokio::sync::mpsc;

use crate::bank_formats;
use crate::harness::{assert_accepted, assert_not_sent, assert_unknown, in_time, payment, rail, refusal};

/// A token endpoint and a bank, on one address.
struct Server {
    address: SocketAddr,
    /// The number of tokens that were given out; the newest is `token-N`.
    tokens: AtomicUsize,
    /// The only token that the bank accepts; any if it is empty.
    accepted: Mutex<String>,
    expires_in: AtomicUsize,
    /// The status of the token endpoint.
    token_status: AtomicUsize,
    paid: Mutex<Vec<String>>,
    refused: AtomicUsize,
    /// The token requests: the headers and the form.
    asked: mpsc::UnboundedSender<(HeaderMap, String)>,
}

async fn token(State(server): State<Arc<Server>>, headers: HeaderMap, body: String) -> Response {
    server.asked.send((headers, body)).unwrap();
    let status = StatusCode::from_u16(u16::try_from(server.token_status.load(Ordering::SeqCst)).unwrap()).unwrap();
    if status != StatusCode::OK {
        return (status, json!({ "error": "invalid_client", "error_description": "hidden" }).to_string())
            .into_response();
    }
    let number = server.tokens.fetch_add(1, Ordering::SeqCst) + 1;
    let expires_in = server.expires_in.load(Ordering::SeqCst);
    json!({ "access_token": format!("token-{number}"), "token_type": "Bearer", "expires_in": expires_in })
        .to_string()
        .into_response()
}

/// 401, unless the request has the accepted token.
fn refusal_of(server: &Server, headers: &HeaderMap) -> Option<Response> {
    let given = headers["authorization"].to_str().unwrap().strip_prefix("Bearer ").unwrap();
    let accepted = server.accepted.lock().unwrap().clone();
    if accepted.is_empty() || accepted == given {
        return None;
    }
    server.refused.fetch_add(1, Ordering::SeqCst);
    Some((StatusCode::UNAUTHORIZED, json!({ "code": "TOKEN_REVOKED" }).to_string()).into_response())
}

fn executed() -> Response {
    json!({ "status": "EXECUTED" }).to_string().into_response()
}

async fn pay(State(server): State<Arc<Server>>, headers: HeaderMap, body: String) -> Response {
    refusal_of(&server, &headers).unwrap_or_else(|| {
        server.paid.lock().unwrap().push(body);
        executed()
    })
}

async fn inquire(State(server): State<Arc<Server>>, headers: HeaderMap) -> Response {
    refusal_of(&server, &headers).unwrap_or_else(executed)
}

type Asked = mpsc::UnboundedReceiver<(HeaderMap, String)>;

async fn start() -> (Arc<Server>, Asked) {
    let (asked, requests) = mpsc::unbounded_channel();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Arc::new(Server {
        address: listener.local_addr().unwrap(),
        tokens: AtomicUsize::new(0),
        accepted: Mutex::default(),
        expires_in: AtomicUsize::new(3600),
        token_status: AtomicUsize::new(200),
        paid: Mutex::default(),
        refused: AtomicUsize::new(0),
        asked,
    });
    let router = Router::new()
        .route("/token", post(token))
        .route("/pay", post(pay))
        .route("/find", get(inquire))
        .with_state(Arc::clone(&server));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (server, requests)
}

/// A rail with these settings of `oauth`, beside `client_id`.
fn rail_with(server: &Server, oauth: &str, more: &str) -> Arc<dyn Rail> {
    let address = server.address;
    rail(&format!(
        "kind = 'http'\nurl = 'http://{address}/pay'\ninquiry_url = 'http://{address}/find?key={{idempotency_key}}'\n\
         allow_http = true\nallow_private = ['127.0.0.1']\n{more}\n\
         [oauth]\ntoken_url = 'http://{address}/token'\nclient_id = 'our client'\n{oauth}\n"
    ))
}

/// The same with a client secret, which is the name of this package.
fn with_secret(server: &Server, more: &str) -> Arc<dyn Rail> {
    rail_with(server, "client_secret_env = 'CARGO_PKG_NAME'", more)
}

fn form(body: &str) -> HashMap<String, String> {
    url::form_urlencoded::parse(body.as_bytes()).into_owned().collect()
}

#[tokio::test]
async fn one_token_serves_all_payments_and_inquiries() {
    let (server, mut asked) = start().await;
    *server.accepted.lock().unwrap() = "token-1".to_owned();
    let rail = with_secret(&server, "");
    let sending: Vec<_> = (0..20)
        .map(|_| {
            let rail = Arc::clone(&rail);
            tokio::spawn(async move { assert_accepted(&rail.dispatch(&payment()).await) })
        })
        .collect();
    for sent in sending {
        sent.await.unwrap();
    }
    assert!(matches!(rail.inquire(&payment()).await, Inquiry::Executed(_)));
    assert_eq!((server.tokens.load(Ordering::SeqCst), server.paid.lock().unwrap().len()), (1, 20));
    asked.recv().await.unwrap();
    assert!(asked.try_recv().is_err());
}

#[tokio::test]
async fn a_token_is_renewed_ahead_of_its_expiry_without_a_payment() {
    let (server, mut asked) = start().await;
    // Renewed after a second, and used for no payment in its last five.
    server.expires_in.store(2, Ordering::SeqCst);
    let rail = with_secret(&server, "");
    assert_accepted(&rail.dispatch(&payment()).await);
    asked.recv().await.unwrap();
    server.expires_in.store(3600, Ordering::SeqCst);
    in_time(asked.recv()).await.unwrap();
    *server.accepted.lock().unwrap() = "token-2".to_owned();
    // The renewal has asked, and this dispatch waits for its answer or finds it.
    assert_accepted(&rail.dispatch(&payment()).await);
    assert_eq!(server.tokens.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_revoked_token_is_replaced_once_and_the_payment_sent_again_under_the_same_key() {
    let (server, _asked) = start().await;
    let rail = with_secret(&server, "");
    assert_accepted(&rail.dispatch(&payment()).await);
    *server.accepted.lock().unwrap() = "token-2".to_owned();
    assert_accepted(&rail.dispatch(&payment()).await);
    assert_eq!((server.refused.load(Ordering::SeqCst), server.tokens.load(Ordering::SeqCst)), (1, 2));
    {
        let paid = server.paid.lock().unwrap();
        assert!(paid.len() == 2 && paid[0] == paid[1]);
    }
    *server.accepted.lock().unwrap() = "token-3".to_owned();
    assert!(matches!(rail.inquire(&payment()).await, Inquiry::Executed(_)));
    // A bank that refuses every token gets two requests, and says nothing about the payment.
    *server.accepted.lock().unwrap() = "none".to_owned();
    let answer = rail.dispatch(&payment()).await;
    assert!(
        matches!(&answer, Answer::Retryable { rail, .. } if rail.code.as_deref() == Some("TOKEN_REVOKED")),
        "{answer:?}"
    );
    assert_eq!((server.refused.load(Ordering::SeqCst), server.paid.lock().unwrap().len()), (4, 2));
}

#[tokio::test]
async fn a_401_that_may_have_paid_is_not_sent_again() {
    let (server, _asked) = start().await;
    let rail = with_secret(&server, "outcomes = { '401' = 'unknown' }");
    assert_accepted(&rail.dispatch(&payment()).await);
    *server.accepted.lock().unwrap() = "token-2".to_owned();
    assert_unknown(&rail.dispatch(&payment()).await);
    assert_eq!((server.refused.load(Ordering::SeqCst), server.tokens.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn without_a_token_nothing_is_sent_and_the_payment_can_be_retried() {
    let (server, _asked) = start().await;
    let rail = with_secret(&server, "");
    server.token_status.store(401, Ordering::SeqCst);
    let answer = rail.dispatch(&payment()).await;
    assert_not_sent(&answer);
    let shown = format!("{answer:?}");
    assert!(shown.contains("the token endpoint answered HTTP 401 (invalid_client)"), "{shown}");
    assert!(!shown.contains("hidden"), "{shown}");
    crate::harness::assert_inconclusive(&rail.inquire(&payment()).await);
    server.token_status.store(200, Ordering::SeqCst);
    assert_accepted(&rail.dispatch(&payment()).await);
    assert_eq!(server.paid.lock().unwrap().len(), 1);

    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let toml = format!(
        "kind = 'http'\nurl = 'http://{}/pay'\nallow_http = true\nallow_private = ['127.0.0.1']\n\
         [oauth]\ntoken_url = 'http://{closed}/token'\nclient_id = 'a'\nclient_secret_env = 'CARGO_PKG_NAME'",
        server.address
    );
    assert_not_sent(&crate::harness::rail(&toml).dispatch(&payment()).await);
    assert_eq!(server.paid.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_signature_can_cover_the_token_and_a_preview_hides_it() {
    let (server, _asked) = start().await;
    let keys = bank_formats::keys();
    let key = keys.path().join("ed25519.pem");
    let more = format!(
        "http_signature = {{ key_file = '{}', key_id = 'k', components = ['authorization', 'content-digest'] }}",
        key.display()
    );
    let rail = with_secret(&server, &more);
    let shown = rail.preview(&payment()).unwrap().unwrap();
    assert!(shown.contains("\nauthorization: ***\n") && shown.contains("\nsignature: ***\n"), "{shown}");
    assert_eq!(server.tokens.load(Ordering::SeqCst), 0);
    assert_accepted(&rail.dispatch(&payment()).await);
}

#[tokio::test]
async fn a_client_secret_is_sent_in_a_header_or_in_the_body() {
    let (server, mut asked) = start().await;
    let more = "scope = 'payments read'\nparameters = { resource = 'https://bank.example/' }";
    let rail = rail_with(&server, &format!("client_secret_env = 'CARGO_PKG_NAME'\n{more}"), "");
    assert_accepted(&rail.dispatch(&payment()).await);
    let (headers, body) = asked.recv().await.unwrap();
    let basic = headers["authorization"].to_str().unwrap().strip_prefix("Basic ").unwrap();
    // RFC 6749, section 2.3.1: both are form-encoded first.
    assert_eq!(STANDARD.decode(basic).unwrap(), b"our+client:symphony-sinks");
    let sent = form(&body);
    assert_eq!((sent["grant_type"].as_str(), sent["scope"].as_str()), ("client_credentials", "payments read"));
    assert_eq!(sent["resource"], "https://bank.example/");
    assert!(!sent.contains_key("client_secret"));

    let rail = rail_with(&server, "client_secret_env = 'CARGO_PKG_NAME'\nsend_secret = 'post'", "");
    assert_accepted(&rail.dispatch(&payment()).await);
    let (headers, body) = asked.recv().await.unwrap();
    assert!(!headers.contains_key("authorization"));
    let sent = form(&body);
    assert_eq!((sent["client_id"].as_str(), sent["client_secret"].as_str()), ("our client", "symphony-sinks"));
}

#[tokio::test]
async fn a_client_can_authenticate_by_a_signed_assertion() {
    let (server, mut asked) = start().await;
    let keys = bank_formats::keys();
    let mut ids = Vec::new();
    for (kind, name) in [("rsa", "PS256"), ("p256", "ES256"), ("p384", "ES384"), ("ed25519", "EdDSA")] {
        let key = keys.path().join(format!("{kind}.pem"));
        let rail = rail_with(
            &server,
            &format!("key_file = '{}'\nkey_id = 'k-1'\naudience = 'https://bank.example/'", key.display()),
            "",
        );
        assert_accepted(&rail.dispatch(&payment()).await);
        let (_, body) = asked.recv().await.unwrap();
        let sent = form(&body);
        assert_eq!(sent["client_assertion_type"], "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
        let public = keys.path().join(format!("{kind}.pub"));
        let token = sent["client_assertion"].as_bytes();
        let read = bank_formats::check(&["jwt", bank_formats::path(&public)], token).unwrap();
        assert_eq!(read["header"], json!({ "alg": name, "typ": "JWT", "kid": "k-1" }));
        let claims = &read["claims"];
        assert_eq!((&claims["iss"], &claims["sub"]), (&json!("our client"), &json!("our client")));
        assert_eq!(claims["aud"], "https://bank.example/");
        assert_eq!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap(), 120);
        ids.push(claims["jti"].as_str().unwrap().to_owned());
        let other = keys.path().join("ed25519.pub");
        if kind != "ed25519" {
            assert!(bank_formats::check(&["jwt", bank_formats::path(&other)], token).is_err());
        }
    }
    ids.dedup();
    assert_eq!(ids.len(), 4);
}

#[test]
fn settings_of_oauth_that_cannot_work_are_refused() {
    let http = "kind = 'http'\nurl = 'http://bank.example/'\nallow_http = true\n";
    let oauth = "[oauth]\ntoken_url = 'http://auth.example/'\nclient_id = 'a'\n";
    for (toml, setting, advice) in [
        (oauth.to_owned(), "oauth.client_secret_file", "must be set"),
        (format!("{oauth}client_secret_env = 'SYMPHONY_NO_SUCH_VARIABLE'"), "oauth.client_secret_env", "set it"),
        (format!("{oauth}client_secret_env = 'A'\nkey_file = 'B'"), "oauth.key_file", "keep one"),
        (format!("{oauth}key_file = '/no/such/file'"), "oauth.key_file", "can be read"),
        (format!("{oauth}client_secret_env = 'CARGO_PKG_NAME'\ntimeout = '2m'"), "oauth.timeout", "60s"),
        (
            format!("{oauth}client_secret_env = 'CARGO_PKG_NAME'\nparameters = {{ scope = 'x' }}"),
            "oauth.parameters.scope",
            "leave it out",
        ),
        (
            format!("bearer_env = 'CARGO_PKG_NAME'\n{oauth}client_secret_env = 'CARGO_PKG_NAME'"),
            "oauth",
            "keep one",
        ),
        (
            format!("headers = {{ Authorization = 'x' }}\n{oauth}client_secret_env = 'CARGO_PKG_NAME'"),
            "headers.Authorization",
            "leave it out",
        ),
        (oauth.replace("http://auth.example/", "http://127.0.0.1/"), "oauth.token_url", "allow_private"),
        (oauth.replace("http://auth", "ftp://auth"), "oauth.token_url", "https://"),
    ] {
        let error = refusal(&format!("{http}{toml}"));
        assert!(
            error.starts_with(&format!("rail sepa: {setting}: ")) && error.contains(advice),
            "{toml}: {error}"
        );
    }
}
