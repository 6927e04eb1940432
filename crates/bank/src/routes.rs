//! The paths of the bank's API, and the checks before a request is handled.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
    routing::{get, post, put},
};
use serde::{Deserialize, Serialize};

use super::{
    fault::Fault,
    fault_change::FaultChange,
    key_store::Decision,
    payment::{MAX_NAME_BYTES, Payment},
    request_handler::{Handled, LedgerBroken, RequestHandler},
    response::{self, json, problem},
    wire::{IDEMPOTENCY_KEY, SEQUENCE, Status},
};

/// The largest body. A payload of the outbox has at most 256 KiB.
const MAX_BODY_BYTES: usize = 320 * 1024;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

type Bank = State<Arc<RequestHandler>>;

pub(super) fn router(handler: Arc<RequestHandler>) -> Router {
    Router::new()
        .route("/v1/payments", post(pay).get(inquire_by_query))
        .route("/v1/payments/{key}", get(inquire))
        .route("/v1/settlements", put(settle))
        .route("/v1/ledger", get(ledger))
        .route("/v1/requests", get(requests))
        .route("/v1/stats", get(stats))
        .route("/v1/faults", get(faults).put(change_faults))
        .with_state(handler)
}

async fn pay(State(handler): Bank, headers: HeaderMap, body: Body) -> Response {
    let bad_request = |code, message: &str| problem(StatusCode::BAD_REQUEST, code, Some(message.to_owned()));
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let (Some(key), None) = (keys.next(), keys.next()) else {
        return bad_request("KEY_MISSING", "send exactly one Idempotency-Key header");
    };
    let key = key.as_bytes().to_vec();
    let sequence_id = headers.get(SEQUENCE).and_then(|number| number.to_str().ok()?.parse().ok());
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let payment = match Payment::read(&body) {
        Ok(payment) => Payment { sequence_id: sequence_id.unwrap_or(payment.sequence_id), ..payment },
        Err(error) => return bad_request("MALFORMED", &error.to_string()),
    };
    if key != payment.key.as_bytes() {
        return bad_request("KEY_MISMATCH", "the idempotency keys of header and body differ");
    }
    let work = async move {
        let key = payment.key.clone();
        let handled = handler.pay(payment).await;
        // Not before the decision is durable: a callback must not come before the bank knows the payment.
        if let Ok(Handled { decision: Decision::Status { status: Status::Pending, replay: false }, .. }) = &handled
        {
            handler.settle_later(key);
        }
        handled
    };
    response::respond(run_to_completion(work).await)
}

#[derive(Deserialize)]
struct KeyQuery {
    key: String,
}

/// An inquiry whose key is in the query, where a `/` needs no care.
async fn inquire_by_query(bank: Bank, Query(query): Query<KeyQuery>) -> Response {
    inquire(bank, Path(query.key)).await
}

async fn inquire(State(handler): Bank, Path(key): Path<String>) -> Response {
    if key.len() > MAX_NAME_BYTES {
        return problem(StatusCode::BAD_REQUEST, "MALFORMED", Some("the key is too long".to_owned()));
    }
    let work = async move { handler.inquire(key).await };
    response::respond(run_to_completion(work).await)
}

/// Completes the work even if the client disconnects: a bank does not undo a payment because a connection broke.
async fn run_to_completion(
    work: impl Future<Output = Result<Handled, LedgerBroken>> + Send + 'static,
) -> Result<Handled, LedgerBroken> {
    tokio::spawn(work).await.unwrap_or(Err(LedgerBroken))
}

/// Decides accepted payments: {"KEY": "EXECUTED"} or {"KEY": "REFUSED"}.
async fn settle(State(handler): Bank, body: Body) -> Response {
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let malformed = || {
        let message = "the body is not a JSON object of keys with EXECUTED or REFUSED".to_owned();
        problem(StatusCode::BAD_REQUEST, "MALFORMED", Some(message))
    };
    let Ok(settlements) = serde_json::from_slice::<BTreeMap<String, String>>(&body) else { return malformed() };
    if settlements.values().any(|status| !matches!(status.as_str(), "EXECUTED" | "REFUSED")) {
        return malformed();
    }
    let mut settled = BTreeMap::new();
    for (key, status) in settlements {
        let Ok(done) = handler.settle(&key, Some(status == "EXECUTED")).await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        settled.insert(key, done);
    }
    json(StatusCode::OK, &settled)
}

async fn ledger(State(handler): Bank) -> Response {
    response::stream_entries(&handler.ledger, |entry| entry.executed)
}

async fn requests(State(handler): Bank) -> Response {
    response::stream_entries(&handler.ledger, |entry| Some(entry.request))
}

async fn stats(State(handler): Bank) -> Response {
    json(StatusCode::OK, &handler.stats())
}

async fn faults(State(handler): Bank) -> Response {
    current_faults(&handler)
}

async fn change_faults(State(handler): Bank, body: Body) -> Response {
    let body = match read_body(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    match FaultChange::read(&body).and_then(|change| handler.change_faults(change)) {
        Ok(()) => current_faults(&handler),
        Err(error) => problem(StatusCode::BAD_REQUEST, "MALFORMED", Some(error.to_string())),
    }
}

fn current_faults(handler: &RequestHandler) -> Response {
    #[derive(Serialize)]
    struct Current {
        #[serde(flatten)]
        faults: std::collections::BTreeMap<&'static str, String>,
        for_key: std::collections::BTreeMap<String, Vec<Fault>>,
    }
    let (faults, for_key) = handler.faults();
    json(StatusCode::OK, &Current { faults: faults.to_text(), for_key })
}

/// Reads a body within its limits.
async fn read_body(body: Body) -> Result<Bytes, Response> {
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => {
            let message = format!("the body is incomplete or longer than {MAX_BODY_BYTES} bytes");
            Err(problem(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", Some(message)))
        }
        Err(_) => Err(problem(StatusCode::REQUEST_TIMEOUT, "TOO_SLOW", None)),
    }
}
