//! The conformance suite for adapters: whether the server at a URL keeps the adapter protocol (`docs/adapters.md`).
//!
//! The suite sends what a relayer sends, with the rail's own client, signatures and tables. It also sends what only a
//! faulty or hostile client sends: forged signatures, a known key with another amount, truncated JSON. It sees answers
//! and nothing else, so an adapter that pays twice and reports one reference passes.
//!
//! # Layout
//! - `report`: the results
//! - `suite`: requests and replies, which the checks share
//! - `payments`, `idempotency`, `inquiries`, `signatures`, `bodies`, `keys`: the checks

mod bodies;
mod idempotency;
mod inquiries;
mod keys;
mod payments;
mod report;
mod signatures;
mod suite;

use std::time::Duration;

use symphony_db::payment::Payload;

use super::settings::Settings;
use super::{HttpRail, Rail as _};
use crate::config::{self, ConfigError, SettingError};
pub use report::{CheckResult, CheckState, Report};
use suite::Suite;

/// What the suite sends, beside the settings of the rail.
#[derive(Clone, Debug)]
pub struct TestPayments {
    /// The rail's name in each request.
    pub rail_type: String,
    /// Part of each key, so that no two runs share keys.
    pub run: String,
    /// A payload that the adapter accepts.
    pub payload: Payload,
    /// A payload that the adapter refuses. Without it the checks of refusals are skipped.
    pub refused: Option<Payload>,
    /// How many requests with one key are sent at once.
    pub parallel: usize,
    /// The most time from HTTP 202 until an inquiry says what became of the payment.
    pub confirm_within: Duration,
}

/// A suite that is ready to run.
pub struct AdapterCheck(Suite);

impl AdapterCheck {
    /// Prepares the suite for a rail of `kind = "http"` with these settings, which need an `inquiry_url`.
    ///
    /// # Errors
    ///
    /// The setting that is wrong, or the payload if the rail would not send it.
    pub fn build(mut settings: toml::Table, payments: TestPayments) -> Result<Self, ConfigError> {
        let name = payments.rail_type.clone();
        let owned = |error: SettingError| error.for_rail(&name);
        settings.remove("kind");
        let settings: Settings = config::read(settings).map_err(owned)?;
        let rail = HttpRail::build(&name, settings).map_err(owned)?;
        if !rail.supports_inquiry() {
            return Err(owned(SettingError::new(
                "inquiry_url",
                "is required: the suite inquires about each payment",
            )));
        }
        let suite = Suite::new(rail, payments);
        suite.rail().validate(&suite.payment("first")).map_err(|invalid| {
            owned(SettingError::new("payload", format!("the rail would not send it: {}", invalid.message)))
        })?;
        Ok(Self(suite))
    }

    /// Runs every check, one after the other. Stops after the first if the adapter executes no payment at all.
    pub async fn run(self) -> Report {
        let suite = std::sync::Arc::new(self.0);
        let mut report = Report::default();
        if payments::run(&suite, &mut report).await {
            idempotency::run(&suite, &mut report).await;
            inquiries::run(&suite, &mut report).await;
            signatures::run(&suite, &mut report).await;
            keys::run(&suite, &mut report).await;
            bodies::run(&suite, &mut report).await;
            payments::answer_times(&suite, &mut report);
        } else {
            report.stopped = true;
        }
        report
    }
}
