//! The listener for callbacks: a bank reports what became of a payment, and the database settles it.
//!
//! It has a separate address, because banks must not reach the console. It serves `POST /callbacks/RAIL` alone. The rail verifies
//! the signature before anything else is done with a request; `confirm_payment_outbox` decides what it may change. The bank gets
//! 2xx only for what is recorded, or need not be; it delivers the rest again.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde_json::json;
use symphony_console::sanitize::plain;
use symphony_db::WorkerId;
use symphony_db::connect::{Session, Target};
use symphony_db::payment::worker::{self, Confirmation};
use symphony_db::payment::{ConfirmationResult, ConfirmedOutcome};
use symphony_relay::rail::{Callback, CallbackError, CallbackOutcome, CallbackRequest, Rail};
use symphony_relay::session_pool::SessionPool;
use tokio::time::timeout;

use crate::config;
use crate::failure::Failure;

/// The longest body.
const MAX_BODY_BYTES: usize = 64 * 1024;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the database may take. A claim that holds the row lets it wait.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);
/// Sessions of the database: callbacks beyond them wait.
const SESSIONS: usize = 2;
/// Seconds after which the bank may deliver again what could not be recorded.
const RETRY_AFTER_SECONDS: u64 = 5;

/// The state of the listener.
pub(crate) struct Callbacks {
    rails: BTreeMap<String, Arc<dyn Rail>>,
    pool: SessionPool,
    worker: WorkerId,
    rate: RateLimit,
    counted: Family<Labels, Counter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    rail: String,
    result: &'static str,
}

/// Refuses a listener that no rail uses, and a rail whose callbacks no listener takes.
pub(crate) fn check_address<'a>(
    settings: &config::Callbacks,
    mut rails: impl Iterator<Item = &'a String>,
) -> Result<(), Failure> {
    if !(1..=10_000).contains(&settings.max_per_second) {
        return Err(Failure::usage("callbacks.max_per_second must be from 1 to 10000")
            .hint("see all settings with: symphony run --print-example"));
    }
    match (settings.listen.trim(), rails.next()) {
        ("", Some(rail)) => Err(Failure::usage(format!(
            "rail {} has a section callback, but callbacks.listen is empty, so no callback would arrive",
            plain(rail)
        ))
        .hint("set callbacks.listen to an address that the bank or your proxy reaches, or remove the section")),
        ("", None) | (_, Some(_)) => Ok(()),
        (_, None) => Err(Failure::usage("callbacks.listen is set, but no rail has a section callback")
            .hint("add [rails.NAME.callback], or clear callbacks.listen; see docs/sinks/http.md")),
    }
}

impl Callbacks {
    pub(crate) fn new(
        rails: BTreeMap<String, Arc<dyn Rail>>,
        target: Arc<Target>,
        worker: WorkerId,
        settings: &config::Callbacks,
        registry: &mut Registry,
    ) -> Self {
        let counted = Family::<Labels, Counter>::default();
        registry.register("callbacks", "Callbacks of banks, by what became of them", counted.clone());
        let rate = RateLimit::new(settings.max_per_second);
        Self { rails, pool: SessionPool::with_size(SESSIONS, target), worker, rate, counted }
    }

    /// Verifies, limits and records one callback.
    async fn handle(&self, name: &str, rail: &dyn Rail, headers: &HeaderMap, body: &[u8]) -> Reply {
        let text = |(name, value): (&header::HeaderName, &header::HeaderValue)| {
            Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()))
        };
        let headers: Vec<_> = headers.iter().filter_map(text).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let callback = match rail.read_callback(&CallbackRequest {
            headers: &headers,
            body,
            received_at_unix_seconds: now,
        }) {
            Ok(callback) => callback,
            Err(error) => return Reply::refused_request(&error),
        };
        // After the signature, so that only the bank uses up its share.
        if !self.rate.admits(name, Instant::now()) {
            return Reply {
                status: StatusCode::TOO_MANY_REQUESTS,
                result: "LIMITED",
                retry_after: Some(1),
                message: None,
            };
        }
        let Callback { id, idempotency_key, outcome } = callback;
        let (outcome, rail_answer, reason) = match outcome {
            CallbackOutcome::Pending => return Reply::ok("PENDING"),
            CallbackOutcome::Executed(answer) => (ConfirmedOutcome::Executed, answer, None),
            CallbackOutcome::Refused { reason, rail } => (ConfirmedOutcome::Refused, rail, Some(reason)),
        };
        let confirmation = Confirmation {
            rail_type: name.to_owned(),
            idempotency_key,
            outcome,
            confirmation_id: id,
            endpoint: rail.endpoint().map(|endpoint| endpoint.to_string()),
            rail: rail_answer,
            reason,
        };
        self.record(&confirmation).await
    }

    async fn record(&self, confirmation: &Confirmation) -> Reply {
        let rail = confirmation.rail_type.as_str();
        let confirm =
            self.pool.call(async |session: &Session| worker::confirm(session, &self.worker, confirmation).await);
        let confirmed = match timeout(CONFIRM_TIMEOUT, confirm).await {
            Ok(Ok(confirmed)) => confirmed,
            Ok(Err(error)) => {
                tracing::warn!(rail, %error, "a callback could not be recorded; the bank has to deliver it again");
                return Reply::unavailable();
            }
            Err(_) => {
                tracing::warn!(rail, after = ?CONFIRM_TIMEOUT, "recording a callback timed out; the bank has to deliver it again");
                return Reply::unavailable();
            }
        };
        let outbox_id = confirmed.outbox_id.map(|id| id.to_string());
        match (confirmed.result, confirmation.outcome) {
            (ConfirmationResult::Settled, outcome) => {
                tracing::info!(
                    event = "PAYMENT_CONFIRMED",
                    outbox_id,
                    rail,
                    outcome = outcome.as_str(),
                    "a callback settled a payment"
                );
                if outcome == ConfirmedOutcome::Refused {
                    let error_code = confirmation.reason.as_ref().map(|reason| reason.code.as_str());
                    tracing::warn!(
                        event = "PAYMENT_FAILED",
                        outbox_id,
                        rail,
                        error_code,
                        "a payment ended as FAILED"
                    );
                }
            }
            (ConfirmationResult::Replayed, _) => {
                tracing::debug!(outbox_id, rail, "a callback says what is known already");
            }
            (refused, outcome) => tracing::error!(
                event = "CONFIRMATION_REFUSED",
                kind = refused.as_str(),
                outbox_id,
                rail,
                outcome = outcome.as_str(),
                "a callback contradicts the ledger or fits no payment: compare it with the bank"
            ),
        }
        match confirmed.result {
            ConfirmationResult::Settled => Reply::ok("SETTLED"),
            ConfirmationResult::Replayed => Reply::ok("REPLAYED"),
            refused => {
                Reply { status: StatusCode::CONFLICT, result: refused.as_str(), retry_after: None, message: None }
            }
        }
    }
}

/// What the bank is told.
struct Reply {
    status: StatusCode,
    /// Also the label of the metric.
    result: &'static str,
    retry_after: Option<u64>,
    message: Option<String>,
}

impl Reply {
    fn ok(result: &'static str) -> Self {
        Self { status: StatusCode::OK, result, retry_after: None, message: None }
    }

    fn unavailable() -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { status, result: "UNAVAILABLE", retry_after: Some(RETRY_AFTER_SECONDS), message: None }
    }

    fn refused_request(error: &CallbackError) -> Self {
        let (status, result) = match error {
            CallbackError::NotSupported => (StatusCode::NOT_FOUND, "NOT_SUPPORTED"),
            CallbackError::NotSigned => (StatusCode::UNAUTHORIZED, "NOT_SIGNED"),
            CallbackError::WrongTime { .. } => (StatusCode::UNAUTHORIZED, "WRONG_TIME"),
            CallbackError::Malformed { .. } => (StatusCode::BAD_REQUEST, "MALFORMED"),
        };
        Self { status, result, retry_after: None, message: Some(error.to_string()) }
    }
}

/// The routes of the listener.
pub(crate) fn routes(callbacks: Callbacks) -> Router {
    Router::new().route("/callbacks/{rail}", post(callback)).with_state(Arc::new(callbacks))
}

async fn callback(
    State(callbacks): State<Arc<Callbacks>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(rail) = callbacks.rails.get(&name) else { return StatusCode::NOT_FOUND.into_response() };
    let body = match timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        Err(_) => return StatusCode::REQUEST_TIMEOUT.into_response(),
    };
    let reply = callbacks.handle(&name, rail.as_ref(), &headers, &body).await;
    callbacks.counted.get_or_create(&Labels { rail: name.clone(), result: reply.result }).inc();
    if matches!(reply.result, "MALFORMED" | "WRONG_TIME") {
        // Signed by the bank, so that strangers cannot fill the log.
        tracing::warn!(rail = name, reason = reply.message, "a signed callback was refused");
    }
    let mut response =
        (reply.status, Json(json!({ "result": reply.result, "message": reply.message }))).into_response();
    if let Some(seconds) = reply.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// A token bucket for each rail.
struct RateLimit {
    per_second: f64,
    buckets: Mutex<HashMap<String, (Instant, f64)>>,
}

impl RateLimit {
    fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second), buckets: Mutex::default() }
    }

    fn admits(&self, rail: &str, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, tokens) = buckets.entry(rail.to_owned()).or_insert((now, self.per_second));
        *tokens =
            (*tokens + now.saturating_duration_since(*at).as_secs_f64() * self.per_second).min(self.per_second);
        *at = now;
        let admitted = *tokens >= 1.0;
        if admitted {
            *tokens -= 1.0;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rail_has_its_share_of_each_second() {
        let (limit, start) = (RateLimit::new(2), Instant::now());
        let admits = |rail, millis| limit.admits(rail, start + Duration::from_millis(millis));
        assert_eq!([0, 0, 0].map(|at| admits("a", at)), [true, true, false]);
        assert!(admits("b", 0));
        assert_eq!([499, 500, 501].map(|at| admits("a", at)), [false, true, false]);
        assert_eq!([9_000, 9_000, 9_000].map(|at| admits("a", at)), [true, true, false]);
    }

    #[test]
    fn a_listener_and_a_rail_that_takes_callbacks_need_each_other() {
        let settings =
            |listen: &str, max_per_second| config::Callbacks { listen: listen.to_owned(), max_per_second };
        let sepa = ["sepa".to_owned()];
        let check = |listen, rails: &[String]| check_address(&settings(listen, 1), rails.iter());
        assert!(check("", &[]).is_ok() && check("127.0.0.1:0", &sepa).is_ok());
        let refused = check("", &sepa).unwrap_err().render();
        assert!(refused.contains("rail sepa has a section callback, but callbacks.listen is empty"), "{refused}");
        assert!(check("127.0.0.1:0", &[]).unwrap_err().render().contains("no rail has a section callback"));
        assert!(check_address(&settings("", 0), sepa.iter()).is_err());
    }
}
