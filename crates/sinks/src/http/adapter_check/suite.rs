//! The requests of the suite and the replies to them.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::HeaderName;
use reqwest::{Body, Request};
use serde_json::{Map, Value};
use symphony_db::payment::{Payload, RailAnswer};
use symphony_relay::rail::{Answer, Inquiry, Invalid, Payment};
use tokio::time::sleep;
use uuid::Uuid;

use super::TestPayments;
use crate::http::HttpRail;
use crate::http::client::SendError;
use crate::http::credentials::{Credentials, WEBHOOK_ID};
use crate::http::oauth::Token;

/// The participant of every test payment.
const PARTICIPANT: &str = "symphony-check";
/// The pause between inquiries about a payment that was accepted and is not decided yet.
const CONFIRM_EVERY: Duration = Duration::from_millis(200);

/// The rail, the test payments, and what was measured.
pub(super) struct Suite {
    rail: HttpRail,
    payments: TestPayments,
    sequence: AtomicI64,
    slowest: Mutex<Duration>,
    timed_out: Mutex<Vec<String>>,
}

/// A reply to a payment, and how the rail would classify it.
pub(super) struct Reply {
    /// None if there was no complete response.
    pub(super) status: Option<u16>,
    answer: Answer,
}

impl Suite {
    pub(super) fn new(rail: HttpRail, payments: TestPayments) -> Self {
        Self {
            rail,
            payments,
            sequence: AtomicI64::new(0),
            slowest: Mutex::default(),
            timed_out: Mutex::default(),
        }
    }

    pub(super) fn rail(&self) -> &HttpRail {
        &self.rail
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.rail.credentials
    }

    pub(super) fn parallel(&self) -> usize {
        self.payments.parallel
    }

    /// A new payment, under a key of this run that ends in `name`.
    pub(super) fn payment(&self, name: &str) -> Payment {
        let key = format!("symphony-check-{}-{name}", self.payments.run);
        Payment {
            outbox_id: Uuid::nil().into(),
            instruction_id: key.clone(),
            participant_id: PARTICIPANT.to_owned(),
            sequence_id: self.sequence.fetch_add(1, Ordering::Relaxed) + 1,
            idempotency_key: key,
            rail_type: self.payments.rail_type.clone(),
            payload: self.payments.payload.clone(),
            attempt_count: 0,
        }
    }

    /// A payment that the adapter refuses, if there is a payload for it.
    pub(super) fn refused_payment(&self, name: &str) -> Option<Payment> {
        let payload = self.payments.refused.clone()?;
        Some(Payment { payload, ..self.payment(name) })
    }

    /// The payload as an object. It was checked before the run, so that it is one.
    pub(super) fn payload(&self) -> Map<String, Value> {
        self.payments.payload.parse().unwrap_or_default()
    }

    /// The body of a payment's request.
    pub(super) fn body(&self, payment: &Payment) -> Result<Vec<u8>, String> {
        let request = self.rail.unfinished_request(payment).map_err(text)?;
        Ok(request.body().and_then(Body::as_bytes).unwrap_or_default().to_vec())
    }

    /// The request of a payment, signed now.
    pub(super) async fn request(&self, payment: &Payment) -> Result<Request, String> {
        let token = self.token().await?;
        self.rail.payment_request(payment, token.as_deref()).map_err(text)
    }

    /// A request with another body under a payment's key, signed now.
    pub(super) async fn request_with_body(&self, payment: &Payment, body: Vec<u8>) -> Result<Request, String> {
        let token = self.token().await?;
        let mut request = self.rail.unfinished_request(payment).map_err(text)?;
        *request.body_mut() = Some(body.into());
        self.rail.finish(request, &payment.idempotency_key, token.as_deref()).map_err(text)
    }

    /// The inquiry about a payment, signed now.
    pub(super) async fn inquiry_request(&self, payment: &Payment) -> Result<Request, String> {
        let target = self.rail.inquiry.as_ref().ok_or("this rail has no inquiry_url")?;
        let token = self.token().await?;
        self.rail.inquiry_request(target, payment, token.as_deref()).map_err(text)
    }

    /// The rail's access token, if it needs one.
    async fn token(&self) -> Result<Option<Arc<Token>>, String> {
        match &self.rail.tokens {
            Some(tokens) => tokens.token().await.map(Some),
            None => Ok(None),
        }
    }

    /// Sends a payment as a relayer does.
    pub(super) async fn pay(&self, payment: &Payment) -> Reply {
        match self.request(payment).await {
            Ok(request) => self.send(request).await,
            Err(why) => Reply::none(why),
        }
    }

    /// Sends a request that was changed, or not, and classifies the response as the rail does. If the adapter accepts the payment,
    /// waits for its decision.
    pub(super) async fn send(&self, request: Request) -> Reply {
        let what = format!("{} {}", request.method(), request.url());
        let key = self.key_of(&request);
        let began = Instant::now();
        match self.rail.client.send(request).await {
            Ok(response) => {
                self.measured(began);
                let answer = match self.rail.outcome_table.answer(&response, &self.rail.inquiry_table) {
                    Answer::AwaitingConfirmation(rail) => self.decision(key, rail).await,
                    other => other,
                };
                Reply { status: Some(response.status), answer }
            }
            Err(SendError::NotSent(why)) => Reply::none(format!("nothing was sent: {why}")),
            Err(SendError::MayHaveBeenSent(why)) => {
                self.unanswered(&what, &why);
                Reply::none(why)
            }
        }
    }

    /// The key that an adapter must go by: the signed one, if requests are signed.
    fn key_of(&self, request: &Request) -> String {
        let header = |name: &HeaderName| request.headers().get(name)?.to_str().ok();
        header(&WEBHOOK_ID).or_else(|| header(&self.rail.idempotency_header)).unwrap_or_default().to_owned()
    }

    /// What an inquiry says of an accepted payment, once it is decided.
    async fn decision(&self, key: String, accepted: RailAnswer) -> Answer {
        let payment = Payment { idempotency_key: key, ..self.payment("accepted") };
        let began = Instant::now();
        loop {
            let inquiry = self.inquire(&payment).await;
            match inquiry {
                Inquiry::Executed(rail) => return Answer::Executed(rail),
                Inquiry::Refused { reason, rail } => return Answer::Refused { reason, rail },
                Inquiry::Pending { .. } | Inquiry::NoAnswer { .. }
                    if began.elapsed() < self.payments.confirm_within =>
                {
                    sleep(CONFIRM_EVERY).await;
                }
                undecided => {
                    let (after, said) = (began.elapsed(), said(&undecided));
                    let message = format!("accepted, with an inquiry after {after:.1?} that says: {said}");
                    return Answer::Unknown { message, rail: accepted, row_only: false };
                }
            }
        }
    }

    /// Inquires about a payment as a relayer does.
    pub(super) async fn inquire(&self, payment: &Payment) -> Inquiry {
        match self.inquiry_request(payment).await {
            Ok(request) => self.send_inquiry(request).await.1,
            Err(message) => Inquiry::NoAnswer { message, rail: RailAnswer::default() },
        }
    }

    /// Sends an inquiry that was changed, or not: the status of the response, and what it says.
    pub(super) async fn send_inquiry(&self, request: Request) -> (Option<u16>, Inquiry) {
        let what = format!("{} {}", request.method(), request.url());
        let began = Instant::now();
        match self.rail.client.send(request).await {
            Ok(response) => {
                self.measured(began);
                (Some(response.status), self.rail.inquiry_table.inquiry(&response))
            }
            Err(SendError::NotSent(message) | SendError::MayHaveBeenSent(message)) => {
                self.unanswered(&what, &message);
                (None, Inquiry::NoAnswer { message, rail: RailAnswer::default() })
            }
        }
    }

    /// Fails unless an inquiry says that the payment was made, under this reference.
    pub(super) async fn is_executed(&self, payment: &Payment, reference: &str) -> Result<(), String> {
        match self.inquire(payment).await {
            Inquiry::Executed(found) if found.reference.as_deref() == Some(reference) => Ok(()),
            other => Err(format!("the payment has the reference {reference}; its inquiry: {}", said(&other))),
        }
    }

    /// Fails unless an inquiry says that the payment was not made.
    pub(super) async fn is_not_executed(&self, payment: &Payment) -> Result<(), String> {
        match self.inquire(payment).await {
            Inquiry::NeverSeen | Inquiry::Refused { .. } => Ok(()),
            other => Err(format!("an inquiry then: {}", said(&other))),
        }
    }

    /// Pays, and fails unless the payment is executed, with a reference.
    pub(super) async fn pay_for_reference(&self, payment: &Payment) -> Result<String, String> {
        let reply = self.pay(payment).await;
        reply.reference().map(str::to_owned).ok_or_else(|| reply.describe())
    }

    /// The longest time until a complete response, and what had none.
    pub(super) fn answer_times(&self) -> (Duration, Vec<String>) {
        (*lock(&self.slowest), lock(&self.timed_out).clone())
    }

    fn measured(&self, began: Instant) {
        let mut slowest = lock(&self.slowest);
        *slowest = (*slowest).max(began.elapsed());
    }

    fn unanswered(&self, what: &str, why: &str) {
        lock(&self.timed_out).push(format!("{what}: {why}"));
    }
}

impl Reply {
    fn none(message: String) -> Self {
        Self { status: None, answer: Answer::Unknown { message, rail: RailAnswer::default(), row_only: false } }
    }

    /// The reference of an executed payment.
    pub(super) fn reference(&self) -> Option<&str> {
        match &self.answer {
            Answer::Executed(rail) | Answer::ExecutedBefore(rail) => rail.reference.as_deref(),
            _ => None,
        }
    }

    /// Whether it says that it repeats an earlier answer.
    pub(super) fn is_repeat(&self) -> bool {
        matches!(self.answer, Answer::ExecutedBefore(_))
    }

    /// Whether it says that the payment was not made and never will be.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.answer, Answer::Refused { .. })
    }

    /// Whether it says that the payment was not made and may be sent again.
    pub(super) fn is_retryable(&self) -> bool {
        matches!(self.answer, Answer::Retryable { .. })
    }

    /// Whether it is a complete response that leaves the outcome unknown, so that the relayer inquires.
    pub(super) fn is_unknown(&self) -> bool {
        self.status.is_some() && matches!(self.answer, Answer::Unknown { .. })
    }

    /// What came back, in a few words.
    pub(super) fn describe(&self) -> String {
        let status = self.status.map(|status| format!("HTTP {status}, ")).unwrap_or_default();
        let meaning = match &self.answer {
            Answer::Executed(rail) => format!("executed{}", details(rail)),
            Answer::ExecutedBefore(rail) => format!("executed before{}", details(rail)),
            Answer::AwaitingConfirmation(rail) => format!("accepted, not executed yet{}", details(rail)),
            Answer::Refused { rail, .. } => format!("refused{}", details(rail)),
            Answer::Retryable { rail, .. } => format!("retryable{}", details(rail)),
            Answer::Unknown { message, .. } if self.status.is_none() => message.clone(),
            Answer::Unknown { message, rail, .. } => {
                // Such as "with a status in its body that contradicts it": the status alone does not show that.
                let why = message.split_once(", with").map(|(_, why)| format!(" (with{why})")).unwrap_or_default();
                format!("unknown outcome{}{why}", details(rail))
            }
        };
        format!("{status}{meaning}")
    }
}

/// What an inquiry said, in a few words.
pub(super) fn said(inquiry: &Inquiry) -> String {
    match inquiry {
        Inquiry::Executed(rail) => format!("executed{}", details(rail)),
        Inquiry::Refused { rail, .. } => format!("refused{}", details(rail)),
        Inquiry::NeverSeen => "never seen".to_owned(),
        Inquiry::Pending { message, .. } => format!("pending ({message})"),
        Inquiry::NoAnswer { message, .. } => format!("inconclusive ({message})"),
    }
}

/// The reference and the code of the bank.
fn details(rail: &RailAnswer) -> String {
    let reference = rail.reference.as_ref().map(|reference| format!(", reference {reference}"));
    // Without a code in the body, the rail keeps the status as the code.
    let code = rail.code.as_ref().filter(|code| !code.starts_with("HTTP ")).map(|code| format!(", code {code}"));
    format!("{}{}", reference.unwrap_or_default(), code.unwrap_or_default())
}

/// The payload with these entries replaced, or removed where the value is null.
pub(super) fn changed(mut payload: Map<String, Value>, entries: &[(&str, Value)]) -> Payload {
    for (name, value) in entries {
        match value {
            Value::Null => payload.remove(*name),
            value => payload.insert((*name).to_owned(), value.clone()),
        };
    }
    Value::Object(payload).into()
}

fn text(invalid: Invalid) -> String {
    invalid.message
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
