//! A rail, sink and store that accepts every dispatch at once.

use std::sync::Arc;
use std::time::Duration;

use symphony_db::payment::RailAnswer;
use symphony_relay::rail::{Answer, BoxFuture, Endpoint, Inquiry, Invalid, Payment, Rail};
use symphony_relay::sink::{Message, Published, Sink};
use symphony_relay::store::{Record, Store, Written};

use super::recorder::Recorder;

/// Accepts every dispatch, and records its time.
pub(super) struct NullDestination(pub(super) Arc<Recorder>);

impl Rail for NullDestination {
    fn validate(&self, _: &Payment) -> Result<(), Invalid> {
        Ok(())
    }

    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer> {
        self.0.dispatched(&payment.instruction_id);
        Box::pin(async { Answer::Executed(RailAnswer::default()) })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Named, so that a benchmark measures what a rail to a bank costs.
    fn endpoint(&self) -> Option<Endpoint> {
        Some(Endpoint::new("null", &[]))
    }

    /// As a bank should. Without it a claim leases heads only on an ordered rail.
    fn supports_inquiry(&self) -> bool {
        true
    }

    fn inquire<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Inquiry> {
        Box::pin(async { Inquiry::NeverSeen })
    }
}

impl Sink for NullDestination {
    fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published> {
        self.0.dispatched(&message.id);
        Box::pin(async { Published::Confirmed { repeat: false } })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

impl Store for NullDestination {
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Written> {
        self.0.dispatched(&record.entry_id);
        Box::pin(async { Written::Stored })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
