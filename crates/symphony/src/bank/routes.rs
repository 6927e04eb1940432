//! The paths of the bank's API, and what is asked of a request before the desk sees it.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
    routing::{get, post},
};
use serde::Serialize;

use super::{
    answer::{self, json, problem},
    demand::{Demand, NAME},
    desk::{Broken, Dealt, Desk},
    fault::Fault,
    orders::Change,
    wire::IDEMPOTENCY_KEY,
};

/// How large a body may be. A payload of the outbox has at most 256 KiB.
const BODY: usize = 320 * 1024;
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

type Bank = State<Arc<Desk>>;

pub(super) fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/v1/payments", post(pay))
        .route("/v1/payments/{key}", get(inquire))
        .route("/v1/ledger", get(ledger))
        .route("/v1/requests", get(requests))
        .route("/v1/stats", get(stats))
        .route("/v1/faults", get(faults).put(order))
        .with_state(desk)
}

async fn pay(State(desk): Bank, headers: HeaderMap, body: Body) -> Response {
    let malformed = |code, message: &str| problem(StatusCode::BAD_REQUEST, code, Some(message.to_owned()));
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let (Some(key), None) = (keys.next(), keys.next()) else {
        return malformed("KEY_MISSING", "give one Idempotency-Key in the header");
    };
    let key = key.as_bytes().to_vec();
    let body = match whole(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let demand = match Demand::read(&body) {
        Ok(demand) => demand,
        Err(error) => return malformed("MALFORMED", &error.to_string()),
    };
    if key != demand.key.as_bytes() {
        return malformed("KEY_MISMATCH", "the header and the body name different keys");
    }
    let work = async move { desk.pay(demand).await };
    answer::dealt(to_the_end(work).await)
}

async fn inquire(State(desk): Bank, Path(key): Path<String>) -> Response {
    if key.len() > NAME {
        return problem(StatusCode::BAD_REQUEST, "MALFORMED", Some("the key is too long".to_owned()));
    }
    let work = async move { desk.inquire(key).await };
    answer::dealt(to_the_end(work).await)
}

/// Does the work whether or not the other side stays to hear of it: a bank does not undo a payment because a line broke.
async fn to_the_end(work: impl Future<Output = Result<Dealt, Broken>> + Send + 'static) -> Result<Dealt, Broken> {
    tokio::spawn(work).await.unwrap_or(Err(Broken))
}

async fn ledger(State(desk): Bank) -> Response {
    answer::listing(&desk.journal, |entry| entry.executed)
}

async fn requests(State(desk): Bank) -> Response {
    answer::listing(&desk.journal, |entry| Some(entry.request))
}

async fn stats(State(desk): Bank) -> Response {
    json(StatusCode::OK, &desk.stats())
}

async fn faults(State(desk): Bank) -> Response {
    current(&desk)
}

async fn order(State(desk): Bank, body: Body) -> Response {
    let body = match whole(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    match Change::read(&body).and_then(|change| desk.order(change)) {
        Ok(()) => current(&desk),
        Err(error) => problem(StatusCode::BAD_REQUEST, "MALFORMED", Some(error.to_string())),
    }
}

fn current(desk: &Desk) -> Response {
    #[derive(Serialize)]
    struct Current {
        #[serde(flatten)]
        faults: std::collections::BTreeMap<&'static str, String>,
        for_key: std::collections::BTreeMap<String, Vec<Fault>>,
    }
    let (faults, for_key) = desk.faults();
    json(StatusCode::OK, &Current { faults: faults.written(), for_key })
}

/// A body within its bounds.
async fn whole(body: Body) -> Result<Bytes, Response> {
    match tokio::time::timeout(BODY_TIME, to_bytes(body, BODY)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(_)) => {
            let message = format!("a body has at most {BODY} bytes, and must arrive whole");
            Err(problem(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", Some(message)))
        }
        Err(_) => Err(problem(StatusCode::REQUEST_TIMEOUT, "TOO_SLOW", None)),
    }
}
