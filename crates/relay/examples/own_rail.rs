//! A relayer with a rail of its own, which books transfers in memory, once per idempotency key.

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use symphony_relay::Relayer;
use symphony_relay::rail::{Answer, BoxFuture, Endpoint, Inquiry, Invalid, Payment, Rail, RailAnswer};
use symphony_relay::relayer::StartError;

/// Idempotency key to reference.
#[derive(Default)]
struct BookTransfers(Mutex<HashMap<String, String>>);

impl Rail for BookTransfers {
    fn validate(&self, payment: &Payment) -> Result<(), Invalid> {
        let json: serde_json::Value = payment.payload.parse().unwrap_or_default();
        let message = "amount must be a string".to_owned();
        if json["amount"].is_string() { Ok(()) } else { Err(Invalid { message }) }
    }

    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer> {
        Box::pin(async move {
            let mut booked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let reference = booked.entry(payment.idempotency_key.clone());
            let reference = reference.or_insert_with(|| format!("BOOK-{}", payment.sequence_id)).clone();
            Answer::Executed(RailAnswer { reference: Some(reference), code: None })
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn endpoint(&self) -> Option<Endpoint> {
        Some(Endpoint::new("books", &["in memory"]))
    }

    fn supports_inquiry(&self) -> bool {
        true
    }

    fn inquire<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Inquiry> {
        Box::pin(async move {
            let booked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match booked.get(&payment.idempotency_key).cloned() {
                Some(reference) => Inquiry::Executed(RailAnswer { reference: Some(reference), code: None }),
                None => Inquiry::NeverSeen,
            }
        })
    }
}

pub(crate) async fn start(database: &str) -> Result<Relayer, StartError> {
    Relayer::builder(database).rail("book", BookTransfers::default()).start().await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let relayer = start(&std::env::var("DATABASE_URL")?).await?;
    relayer.until_signal().await?; // SIGTERM drains: running dispatches finish, nothing further is claimed
    Ok(())
}
