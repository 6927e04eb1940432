//! A rail that fails on demand, for tests of a service that enqueues payments or of a program that runs a relayer.
//!
//! It executes each idempotency key once, in memory, and answers inquiries truthfully, as a bank should. A script says
//! what happens to the next dispatches.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use symphony_relay::rail::{Answer, BoxFuture, Endpoint, Inquiry, Invalid, Payment, Rail, RailAnswer, Reason};

/// What happens to a dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The payment is executed, and the relayer learns it.
    Execute,
    /// The payment is refused with this code, and will not be paid.
    Refuse(String),
    /// Nothing is sent: the relayer may send it again.
    NotSent,
    /// The request is lost: the outcome is unknown, and nothing was executed.
    LoseRequest,
    /// The answer is lost: the outcome is unknown, and the payment was executed.
    LoseAnswer,
    /// Nothing is executed and the bank never answers: stop the relayer meanwhile, to leave a lease behind.
    Hang,
}

/// The rail. A clone shares script and books: keep one, and give one to the relayer.
#[derive(Clone, Debug, Default)]
pub struct ScriptedRail(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    script: VecDeque<Step>,
    failing_inquiries: u32,
    outcomes: HashMap<String, Step>,
    executed: Vec<String>,
    dispatched: Vec<String>,
    inquired: Vec<String>,
}

impl ScriptedRail {
    /// A rail that executes every payment.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends to the script: one step for each of the next dispatches. After its end, payments are executed.
    pub fn then(&self, steps: impl IntoIterator<Item = Step>) {
        self.state().script.extend(steps);
    }

    /// Lets this number of inquiries fail, as if the bank could not be reached.
    pub fn fail_inquiries(&self, count: u32) {
        self.state().failing_inquiries = count;
    }

    /// The idempotency keys that were executed, in order. No key comes twice, unless the relayer is at fault.
    #[must_use]
    pub fn executed(&self) -> Vec<String> {
        self.state().executed.clone()
    }

    /// The keys of all dispatches, in order.
    #[must_use]
    pub fn dispatched(&self) -> Vec<String> {
        self.state().dispatched.clone()
    }

    /// The keys of all inquiries, in order.
    #[must_use]
    pub fn inquired(&self) -> Vec<String> {
        self.state().inquired.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The answer; none if the bank hangs.
    fn dispatch(&mut self, key: &str) -> Option<Answer> {
        self.dispatched.push(key.to_owned());
        if let Some(known) = self.outcomes.get(key) {
            return Some(match known {
                Step::Refuse(code) => refused(code),
                _ => Answer::ExecutedBefore(booked(key)),
            });
        }
        let step = self.script.pop_front().unwrap_or(Step::Execute);
        if matches!(step, Step::Execute | Step::LoseAnswer) {
            self.executed.push(key.to_owned());
        }
        if matches!(step, Step::Execute | Step::LoseAnswer | Step::Refuse(_)) {
            self.outcomes.insert(key.to_owned(), step.clone());
        }
        Some(match step {
            Step::Execute => Answer::Executed(booked(key)),
            Step::Refuse(code) => refused(&code),
            Step::NotSent => {
                let reason = Reason { code: "NOT_SENT".to_owned(), message: None };
                Answer::Retryable { reason, rail: RailAnswer::default(), retry_after: None }
            }
            Step::LoseRequest | Step::LoseAnswer => {
                let message = "the script lost the answer".to_owned();
                Answer::Unknown { message, rail: RailAnswer::default(), row_only: false }
            }
            Step::Hang => return None,
        })
    }

    fn inquire(&mut self, key: &str) -> Inquiry {
        self.inquired.push(key.to_owned());
        if let Some(left) = self.failing_inquiries.checked_sub(1) {
            self.failing_inquiries = left;
            let message = "the script lets this inquiry fail".to_owned();
            return Inquiry::NoAnswer { message, rail: RailAnswer::default() };
        }
        match self.outcomes.get(key) {
            None => Inquiry::NeverSeen,
            Some(Step::Refuse(code)) => {
                let reason = Reason { code: code.clone(), message: None };
                Inquiry::Refused { reason, rail: RailAnswer::default() }
            }
            Some(_) => Inquiry::Executed(booked(key)),
        }
    }
}

fn booked(key: &str) -> RailAnswer {
    RailAnswer { reference: Some(format!("REF-{key}")), code: None }
}

fn refused(code: &str) -> Answer {
    let reason = Reason { code: code.to_owned(), message: None };
    Answer::Refused { reason, rail: RailAnswer { reference: None, code: Some(code.to_owned()) } }
}

impl Rail for ScriptedRail {
    fn validate(&self, _: &Payment) -> Result<(), Invalid> {
        Ok(())
    }

    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let answer = self.state().dispatch(&payment.idempotency_key);
            match answer {
                Some(answer) => answer,
                None => std::future::pending().await,
            }
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn endpoint(&self) -> Option<Endpoint> {
        Some(Endpoint::new("scripted", &["in memory"]))
    }

    fn supports_inquiry(&self) -> bool {
        true
    }

    fn inquire<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Inquiry> {
        Box::pin(async move { self.state().inquire(&payment.idempotency_key) })
    }
}
