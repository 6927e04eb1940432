//! The ways out that lead nowhere: each says at once that all went well.

use std::sync::Arc;
use std::time::Duration;

use symphony_outbox::payment::RailAnswer;
use symphony_relay::rail::{Answer, BoxFuture, Inquiry, Invalid, Payment, Rail};
use symphony_relay::sink::{Message, Published, Sink};
use symphony_relay::store::{Record, Store, Written};

use super::tape::Tape;

/// Takes everything, and lets it be written down when.
pub(super) struct Nothing(pub(super) Arc<Tape>);

impl Rail for Nothing {
    fn validate(&self, _: &Payment) -> Result<(), Invalid> {
        Ok(())
    }

    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer> {
        self.0.dispatched(&payment.instruction_id);
        Box::pin(async { Answer::Accepted(RailAnswer::default()) })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn can_be_asked(&self) -> bool {
        false
    }

    fn inquire<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Inquiry> {
        Box::pin(async { Inquiry::NeverSeen })
    }
}

impl Sink for Nothing {
    fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published> {
        self.0.dispatched(&message.id);
        Box::pin(async { Published::Confirmed { repeat: false } })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

impl Store for Nothing {
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Written> {
        self.0.dispatched(&record.entry_id);
        Box::pin(async { Written::Stored })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
