//! A fake bank that follows docs/sinks/http.md, with the default settings of the rail.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use symphony_relay::rail::{Answer, Inquiry, Payment};

use crate::harness::{assert_unknown, payment, rail_to};

type Ledger = Arc<Mutex<HashMap<String, Value>>>;

async fn pay(State(ledger): State<Ledger>, headers: HeaderMap, body: String) -> Response {
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["idempotency_key"], key.as_str());
    let answer =
        |status: u16, body: Value| (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response();
    match key.split('-').next().unwrap() {
        "pay" => {
            let paid = json!({ "status": "EXECUTED", "reference": format!("R-{key}") });
            ledger.lock().unwrap().insert(key, paid.clone());
            answer(201, paid)
        }
        "refuse" => {
            ledger.lock().unwrap().insert(key, json!({ "status": "REFUSED", "code": "AC04" }));
            answer(422, json!({ "code": "AC04" }))
        }
        "wait" => ([("retry-after", "120")], answer(503, json!({}))).into_response(),
        "slow" => ([("retry-after", "999999")], answer(429, json!({}))).into_response(),
        "pend" => {
            ledger.lock().unwrap().insert(key, json!({ "status": "PENDING" }));
            answer(500, json!({ "status": "PENDING" }))
        }
        other => answer(other.parse().unwrap(), json!({})),
    }
}

async fn inquire(State(ledger): State<Ledger>, Path(key): Path<String>) -> Response {
    match ledger.lock().unwrap().get(&key) {
        Some(found) => found.to_string().into_response(),
        None => (StatusCode::NOT_FOUND, json!({ "status": "UNKNOWN_KEY" }).to_string()).into_response(),
    }
}

async fn bank() -> SocketAddr {
    let router = Router::new()
        .route("/v1/payments", post(pay))
        .route("/v1/payments/{key}", get(inquire))
        .with_state(Ledger::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

fn payment_with_key(key: &str) -> Payment {
    Payment { idempotency_key: key.to_owned(), ..payment() }
}

#[tokio::test]
async fn an_inquiry_finds_an_accepted_payment() {
    let rail = rail_to(bank().await, "");
    assert_eq!(rail.inquire(&payment_with_key("pay-1")).await, Inquiry::NeverSeen);
    let Answer::Executed(accepted) = rail.dispatch(&payment_with_key("pay-1")).await else {
        panic!("not accepted")
    };
    assert_eq!((accepted.reference.as_deref(), accepted.code.as_deref()), (Some("R-pay-1"), Some("HTTP 201")));
    let Inquiry::Executed(found) = rail.inquire(&payment_with_key("pay-1")).await else { panic!("not found") };
    assert_eq!(found.reference.as_deref(), Some("R-pay-1"));
}

#[tokio::test]
async fn an_inquiry_confirms_a_refused_payment() {
    let rail = rail_to(bank().await, "");
    let Answer::Refused { reason, rail: recorded } = rail.dispatch(&payment_with_key("refuse-1")).await else {
        panic!("not refused")
    };
    assert_eq!((reason.code.as_str(), recorded.code.as_deref()), ("RAIL_REFUSED", Some("AC04")));
    let Inquiry::Refused { rail: recorded, .. } = rail.inquire(&payment_with_key("refuse-1")).await else {
        panic!("not refused")
    };
    assert_eq!(recorded.code.as_deref(), Some("AC04"));
}

#[tokio::test]
async fn retry_after_is_respected_up_to_the_cap() {
    let address = bank().await;
    for (key, cap, seconds) in [("wait-1", "1h", 120), ("slow-1", "1h", 3600), ("slow-1", "7s", 7)] {
        let rail = rail_to(address, &format!("retry_after_cap = '{cap}'"));
        let Answer::Retryable { reason, retry_after, .. } = rail.dispatch(&payment_with_key(key)).await else {
            panic!("not later")
        };
        assert_eq!((reason.code.as_str(), retry_after), ("RAIL_RETRYABLE", Some(Duration::from_secs(seconds))));
    }
}

#[tokio::test]
async fn a_status_outside_the_table_is_unknown_until_the_settings_add_it() {
    let address = bank().await;
    for status in ["204", "409", "404", "408", "500", "502", "503", "504"] {
        assert_unknown(&rail_to(address, "").dispatch(&payment_with_key(&format!("{status}-1"))).await);
        let configured =
            rail_to(address, &format!("answer_body = 'any'\noutcomes = {{ '{status}' = 'refused' }}"));
        assert!(
            matches!(configured.dispatch(&payment_with_key(&format!("{status}-1"))).await, Answer::Refused { .. }),
            "{status}"
        );
    }
    let rail = rail_to(address, "");
    assert_unknown(&rail.dispatch(&payment_with_key("pend-1")).await);
    let inquiry = rail.inquire(&payment_with_key("pend-1")).await;
    assert!(matches!(inquiry, Inquiry::Pending { .. }), "{inquiry:?}");
}
