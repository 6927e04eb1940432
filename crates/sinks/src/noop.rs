//! Takes every payment and sends nothing: what is left is the cost of everything else. For benchmarks.

use std::time::Duration;
use symphony_outbox::payment::RailAnswer;

use symphony_relay::rail::{Answer, BoxFuture, Inquiry, Invalid, Payment, Rail};

/// A way out that leads nowhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopRail;

impl Rail for NoopRail {
    fn validate(&self, _: &Payment) -> Result<(), Invalid> {
        Ok(())
    }

    fn dispatch<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Answer> {
        Box::pin(async { Answer::Accepted(RailAnswer::default()) })
    }

    fn timeout(&self) -> Duration {
        Duration::ZERO
    }

    fn can_be_asked(&self) -> bool {
        false
    }

    fn inquire<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Inquiry> {
        Box::pin(async {
            Inquiry::Unsaid { message: "a noop rail remembers nothing".to_owned(), rail: RailAnswer::default() }
        })
    }
}
