//! The demo's payment lane: two rails to one simulated bank with faults.

mod audit;

use std::net::SocketAddr;

use symphony_db::payment::{
    operator::{self, AuditContext},
    reader,
};
use symphony_testkit::shop::{self, Numbers};
use tokio_postgres::Client;

use super::{
    display::{grouped, span},
    environment::DemoEnvironment,
    lane::{Lane, LaneProgress, Row},
    rate::Rate,
};
use crate::command::bank_process::{BankProcess, Counts};
use crate::failure::Failure;
pub(super) use audit::PaymentAudit;

/// The rail without order.
pub(super) const PLAIN_RAIL: &str = "sepa";
/// The ordered rail: each participant's payments in sequence.
pub(super) const ORDERED_RAIL: &str = "payroll";
/// A short lease, so that another relayer takes over a killed one's payments within seconds.
const SETTINGS: &str = r#"
[payment]
lease = "5s"
lease_margin = "1s"
call_timeout = "4s"
repair_every = "1s"
grace = "10s"

[payment.breaker]
failures = 25
open_for = "250ms"
max_open_for = "2s"

[defaults.http]
timeout = "2s"
connect_timeout = "1s"
idle_timeout = "10s"
allow_http = true
allow_private = ["127.0.0.0/8"]
destination = "iban"
"#;

/// The payments of the demo.
pub(super) struct Payments {
    owner: Client,
    bank: BankProcess,
    enqueued: Rate,
    dispatched: Rate,
    /// The last values that were read.
    numbers: Numbers,
    counts: Counts,
}

impl Payments {
    pub(super) async fn open(environment: &DemoEnvironment, faults: &str, seed: u64) -> Result<Self, Failure> {
        Ok(Self {
            owner: environment.owner().await?,
            bank: BankProcess::start(environment.program(), environment.folder(), faults, seed).await?,
            enqueued: Rate::new(),
            dispatched: Rate::new(),
            numbers: Numbers::default(),
            counts: Counts::default(),
        })
    }

    pub(super) fn bank_address(&self) -> SocketAddr {
        self.bank.address()
    }

    /// Resumes rails that the user has paused on the dashboard: their payments would stay pending. Returns their names.
    pub(super) async fn resume_rails(&self) -> Result<Vec<String>, Failure> {
        let rails = reader::rails(&self.owner).await?;
        let paused: Vec<_> = rails.into_iter().filter(|rail| rail.paused).map(|rail| rail.rail_type).collect();
        for rail in &paused {
            let audit_context = AuditContext { actor: shop::OPERATOR, reason: "the demo ends" };
            operator::resume(&self.owner, rail, audit_context).await?;
        }
        Ok(paused)
    }

    /// Ends the bank.
    pub(super) async fn close_bank(&self) {
        self.bank.close().await;
    }
}

impl Lane for Payments {
    type Audit = PaymentAudit;

    fn settings(&self) -> String {
        let url = format!("http://{}/v1/payments", self.bank.address());
        let rail = |rail: &str| {
            format!(
                "\n[rails.{rail}]\nkind = \"http\"\nurl = \"{url}\"\ninquiry_url = \"{url}/{{idempotency_key}}\"\n"
            )
        };
        [SETTINGS.to_owned(), rail(PLAIN_RAIL), rail(ORDERED_RAIL)].concat()
    }

    async fn progress(&mut self) -> Result<LaneProgress, Failure> {
        self.numbers = shop::numbers(&self.owner).await?;
        self.counts = self.bank.counts().await?;
        let rates = [self.enqueued.update(self.numbers.enqueued), self.dispatched.update(self.numbers.dispatched)];
        Ok(progress_of(&self.numbers, &self.counts, rates))
    }

    /// Nothing to do: the lease expires within seconds.
    async fn relayer_killed(&mut self, _worker: &str) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    async fn audit(&mut self) -> Result<PaymentAudit, Failure> {
        audit::run(&mut self.owner, &self.bank.ledger()?, self.counts, self.numbers).await
    }
}

/// The lane's progress, from its numbers and the payments enqueued and dispatched per second.
pub(super) fn progress_of(numbers: &Numbers, bank: &Counts, [enqueued, dispatched]: [u64; 2]) -> LaneProgress {
    let waiting = numbers.pending - numbers.in_flight;
    let [oldest, p50, p99] = [numbers.oldest_ms, numbers.p50_ms, numbers.p99_ms].map(span);
    let rows = vec![
        Row::new("enqueued", grouped(numbers.enqueued), format!("{enqueued}/s")),
        Row::new(
            "dispatched",
            grouped(numbers.dispatched),
            format!("{dispatched}/s; {} executed at the bank", grouped(bank.executed)),
        ),
        Row::new(
            "in flight",
            grouped(numbers.in_flight),
            format!("{} without a lease; oldest {oldest}", grouped(waiting)),
        ),
        Row::new("retried", grouped(numbers.retried), ""),
        Row::new(
            "unknown",
            grouped(numbers.unknown_outcomes),
            format!("unknown outcomes; {} inquiries", grouped(bank.inquiries)),
        ),
        Row::new("dead letters", grouped(numbers.failed), format!("{} refused by the bank", bank.refused)),
        Row::new("latency p50", &p50, format!("p99 {p99}, enqueue to ledger")),
    ];
    let line = format!(
        "enqueued {}, in flight {}, waiting {waiting}, dispatched {} ({dispatched}/s), retried {}, unknown outcomes {}, \
         inquiries {}, dead letters {}, oldest {oldest}, p50 {p50}, p99 {p99}",
        numbers.enqueued,
        numbers.in_flight,
        numbers.dispatched,
        numbers.retried,
        numbers.unknown_outcomes,
        bank.inquiries,
        numbers.failed,
    );
    LaneProgress { open: numbers.pending, rows, line }
}
