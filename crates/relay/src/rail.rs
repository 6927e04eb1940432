//! The interface of a payment rail: implement [`Rail`] to send payments over a bank or payment system of your choice.
//!
//! A rail validates a payment, sends it, and answers inquiries about it:
//!
//! - [`Rail::validate`] returns [`Invalid`] for a payload that must not be sent.
//! - [`Rail::dispatch`] returns an [`Answer`]: executed, awaiting confirmation, refused, retryable or unknown.
//! - [`Rail::inquire`] returns an [`Inquiry`]: what the bank knows about an idempotency key.
//!
//! - [`Rail::read_callback`] verifies and reads what the bank reports by itself, if it does.
//! - [`Rail::endpoint`] names the bank that it reaches, so that no other bank is asked about its payments.
//!
//! The payment lane decides about retries, leases and unknown outcomes; a rail reports only what it knows. It must
//! never guess: if the bank may have paid, the answer is [`Answer::Unknown`].
//!
//! # Example
//!
//! This rail maps the replies of a bank's client library. The important line is the timeout: the request may have
//! arrived, so the outcome is unknown.
//!
//! ```
//! use std::time::Duration;
//!
//! use symphony_relay::rail::{Answer, BoxFuture, Endpoint, Inquiry, Invalid, Payment, Rail, RailAnswer, Reason};
//!
//! /// What the bank's client library returns.
//! enum Reply {
//!     Booked { reference: String },
//!     Rejected { code: String },
//!     UnknownKey,
//!     ConnectionRefused,
//!     Timeout,
//! }
//!
//! trait Bank: Send + Sync + 'static {
//!     fn pay<'a>(&'a self, key: &'a str, json: &'a str) -> BoxFuture<'a, Reply>;
//!     fn find<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Reply>;
//! }
//!
//! struct BankRail<B>(B);
//!
//! impl<B: Bank> Rail for BankRail<B> {
//!     fn validate(&self, payment: &Payment) -> Result<(), Invalid> {
//!         let json: serde_json::Value = payment.payload.parse().unwrap_or_default();
//!         if json["amount"].is_string() {
//!             Ok(())
//!         } else {
//!             Err(Invalid { message: "amount must be a string such as \"10.50\"".to_owned() })
//!         }
//!     }
//!
//!     fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer> {
//!         Box::pin(async move {
//!             match self.0.pay(&payment.idempotency_key, payment.payload.as_json()).await {
//!                 Reply::Booked { reference } => {
//!                     Answer::Executed(RailAnswer { reference: Some(reference), code: None })
//!                 }
//!                 Reply::Rejected { code } => Answer::Refused {
//!                     reason: Reason { code: "REJECTED".to_owned(), message: None },
//!                     rail: RailAnswer { reference: None, code: Some(code) },
//!                 },
//!                 // Nothing left this process, so a retry cannot pay twice.
//!                 Reply::ConnectionRefused => Answer::Retryable {
//!                     reason: Reason { code: "NOT_SENT".to_owned(), message: None },
//!                     rail: RailAnswer::default(),
//!                     retry_after: None,
//!                 },
//!                 // The request may have arrived: never a retryable answer.
//!                 Reply::Timeout | Reply::UnknownKey => Answer::Unknown {
//!                     message: "the bank did not confirm in time".to_owned(),
//!                     rail: RailAnswer::default(),
//!                     row_only: false,
//!                 },
//!             }
//!         })
//!     }
//!
//!     fn timeout(&self) -> Duration {
//!         Duration::from_secs(10)
//!     }
//!
//!     fn endpoint(&self) -> Option<Endpoint> {
//!         Some(Endpoint::new("bank.example", &["https://bank.example/v1", "account 4711"]))
//!     }
//!
//!     fn supports_inquiry(&self) -> bool {
//!         true
//!     }
//!
//!     fn inquire<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Inquiry> {
//!         Box::pin(async move {
//!             match self.0.find(&payment.idempotency_key).await {
//!                 Reply::Booked { reference } => {
//!                     Inquiry::Executed(RailAnswer { reference: Some(reference), code: None })
//!                 }
//!                 Reply::Rejected { code } => Inquiry::Refused {
//!                     reason: Reason { code: "REJECTED".to_owned(), message: None },
//!                     rail: RailAnswer { reference: None, code: Some(code) },
//!                 },
//!                 Reply::UnknownKey => Inquiry::NeverSeen,
//!                 Reply::ConnectionRefused | Reply::Timeout => Inquiry::NoAnswer {
//!                     message: "the bank is not reachable".to_owned(),
//!                     rail: RailAnswer::default(),
//!                 },
//!             }
//!         })
//!     }
//! }
//! ```
//!
//! The [crate page](crate) shows a program that runs a rail.

mod callback;
mod endpoint;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use callback::{Callback, CallbackError, CallbackOutcome, CallbackRequest};
pub use endpoint::Endpoint;
use symphony_db::OutboxId;
pub use symphony_db::payment::{Payload, RailAnswer, Reason};

/// A boxed future: rails, sinks and stores are chosen at run time, so their traits must be dyn-compatible.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A payment, as a rail receives it.
#[derive(Clone, Debug)]
pub struct Payment {
    /// The id of the outbox row, for logs.
    pub outbox_id: OutboxId,
    /// The producer's own id of the payment.
    pub instruction_id: String,
    /// The participant whose payments are numbered in one sequence.
    pub participant_id: String,
    /// The position in that sequence.
    pub sequence_id: i64,
    /// The idempotency key: the same on every attempt. The rail must not pay twice under one key.
    pub idempotency_key: String,
    /// The name of the rail.
    pub rail_type: String,
    /// What to pay.
    pub payload: Payload,
    /// The number of attempts before this one.
    pub attempt_count: i32,
}

/// The result of a dispatch, as the rail knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The rail executed the payment and said so. Recorded as `DISPATCHED`.
    Executed(RailAnswer),
    /// The rail had executed the payment under this key before, said so, and did not pay again. Recorded as `DISPATCHED`. At a
    /// first attempt it proves that the database has lost an earlier one, which is recorded too.
    ExecutedBefore(RailAnswer),
    /// The rail has the payment and decides later whether to execute it. Recorded as `RETRYABLE` with
    /// `AWAITING_CONFIRMATION`: from then on the lane only inquires, and never sends the payment again. A callback may settle it
    /// too; see [`Rail::read_callback`]. Only for a rail that supports one of the two.
    AwaitingConfirmation(RailAnswer),
    /// The rail refused the payment: nothing was paid, and a retry would be refused too. Recorded as `FAILED`.
    Refused {
        /// Why.
        reason: Reason,
        /// The rail's own reference and code.
        rail: RailAnswer,
    },
    /// Nothing was paid, and a retry may succeed: nothing was sent, or the rail asked to retry. Recorded as
    /// `RETRYABLE`.
    Retryable {
        /// Why.
        reason: Reason,
        /// The rail's own reference and code.
        rail: RailAnswer,
        /// The delay before the retry, if the rail named one. Else the rail's backoff decides.
        retry_after: Option<Duration>,
    },
    /// The payment may have been made (unknown outcome). The next attempt begins with an inquiry.
    Unknown {
        /// What is known, for operators; without personal data. The lane sets the error code.
        message: String,
        /// The rail's own reference and code.
        rail: RailAnswer,
        /// Whether only this request is the cause, such as its size. Then it does not count against the circuit
        /// breaker.
        row_only: bool,
    },
}

/// The result of an inquiry: what the rail knows about an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inquiry {
    /// The payment was made under this key.
    Executed(RailAnswer),
    /// The rail refused the payment under this key. Nothing was paid.
    Refused {
        /// Why.
        reason: Reason,
        /// The rail's own reference and code.
        rail: RailAnswer,
    },
    /// The rail has never seen this key. The lane trusts this only while the rail remembers keys.
    NeverSeen,
    /// The rail knows the payment and has not decided it yet.
    Pending {
        /// What is known, for operators; without personal data.
        message: String,
        /// The rail's own reference and code.
        rail: RailAnswer,
    },
    /// The inquiry got no usable answer: an error, a timeout, no connection. Counts against the circuit breaker.
    NoAnswer {
        /// What is known, for operators; without personal data.
        message: String,
        /// The rail's own reference and code.
        rail: RailAnswer,
    },
}

/// A payload that must not be sent. Recorded as `FAILED` with the code `INVALID_PAYLOAD`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// Which field is wrong and what it should be; never the value itself, which may be personal data.
    pub message: String,
}

/// A payment rail. See the [module](self) for an example.
pub trait Rail: Send + Sync + 'static {
    /// Checks a payment before it is sent. Quick, and without IO.
    ///
    /// # Errors
    ///
    /// Which field is wrong, for operators.
    fn validate(&self, payment: &Payment) -> Result<(), Invalid>;

    /// Sends a payment once. The lane retries; a rail must not.
    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer>;

    /// The longest time that one dispatch, or one inquiry, takes.
    fn timeout(&self) -> Duration;

    /// The bank that this rail reaches. The ledger keeps it with each attempt. After an unknown outcome of another endpoint
    /// the lane neither inquires nor sends: this bank would not know what became of the payment.
    ///
    /// It must stay the same while the bank, the account there and its memory of idempotency keys do, and change with any of
    /// them. `None`, the default, leaves it unnamed: the lane then cannot tell two banks apart.
    fn endpoint(&self) -> Option<Endpoint> {
        None
    }

    /// What [`dispatch`](Self::dispatch) would send for this payment, as text for auditors: every byte of the payment, and no
    /// secret. Without IO. `None`, the default, if the rail cannot say.
    fn preview(&self, payment: &Payment) -> Option<Result<String, Invalid>> {
        let _ = payment;
        None
    }

    /// Checks what a dispatch needs beside the bank itself, such as an access token. It sends no payment. The error says what
    /// is missing, for operators; `symphony run --check` warns of it.
    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether [`inquire`](Self::inquire) works for this rail.
    fn supports_inquiry(&self) -> bool;

    /// Asks the rail what became of a payment's idempotency key. Must never pay.
    fn inquire<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Inquiry>;

    /// Whether [`read_callback`](Self::read_callback) works for this rail.
    fn supports_callback(&self) -> bool {
        false
    }

    /// Verifies that a request is the bank's, and reads what it reports. Quick, and without IO.
    ///
    /// # Errors
    ///
    /// Why nothing may be recorded.
    fn read_callback(&self, _request: &CallbackRequest<'_>) -> Result<Callback, CallbackError> {
        Err(CallbackError::NotSupported)
    }
}
