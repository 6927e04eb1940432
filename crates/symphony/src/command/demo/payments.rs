//! The lane of payments: two rails that lead to one bank, which fails in the ways of banks.

mod bank;
mod verdict;

use std::net::SocketAddr;

use symphony_outbox::payment::{
    operator::{self, Warrant},
    reading,
};
use symphony_proof::shop::{self, Numbers};
use tokio_postgres::Client;

use super::{
    lane::{Lane, Look, Row},
    rate::Rate,
    stage::Stage,
    view::{grouped, span},
};
use crate::failure::Failure;
use bank::Bank;
pub(super) use bank::Counts;
pub(super) use verdict::Verdict;

/// Pays in whatever order it can.
pub(super) const PLAIN_RAIL: &str = "sepa";
/// Pays each participant's instructions in the order of their numbers.
pub(super) const ORDERED_RAIL: &str = "payroll";
/// A short lease, so that what a dead relayer held is taken over while somebody watches; the rest follows from it.
const SETTINGS: &str = r#"
[payment]
lease = "5s"
lease_margin = "1s"
call_timeout = "4s"
repair_every = "1s"
grace = "10s"

[payment.breaker]
failures = 25
first_pause = "250ms"
longest_pause = "2s"

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
    bank: Bank,
    enqueued: Rate,
    dispatched: Rate,
    /// The last that was seen.
    numbers: Numbers,
    counts: Counts,
}

impl Payments {
    pub(super) async fn open(stage: &Stage, faults: &str, seed: u64) -> Result<Self, Failure> {
        Ok(Self {
            owner: stage.owner().await?,
            bank: Bank::open(stage, faults, seed).await?,
            enqueued: Rate::new(),
            dispatched: Rate::new(),
            numbers: Numbers::default(),
            counts: Counts::default(),
        })
    }

    pub(super) fn bank_place(&self) -> SocketAddr {
        self.bank.place()
    }

    /// Resumes what somebody has paused on the dashboard: with a paused rail the demo would not come to an end. Says which.
    pub(super) async fn resume_rails(&self) -> Result<Vec<String>, Failure> {
        let rails = reading::rails(&self.owner).await?;
        let paused: Vec<_> = rails.into_iter().filter(|rail| rail.paused).map(|rail| rail.rail_type).collect();
        for rail in &paused {
            let warrant = Warrant { actor: shop::DUTY, reason: "the demo ends" };
            operator::resume(&self.owner, rail, warrant).await?;
        }
        Ok(paused)
    }

    /// Nobody pays any more.
    pub(super) async fn close_bank(&self) {
        self.bank.close().await;
    }
}

impl Lane for Payments {
    type Verdict = Verdict;

    fn settings(&self) -> String {
        let url = format!("http://{}/v1/payments", self.bank.place());
        let rail = |rail: &str| {
            format!(
                "\n[rails.{rail}]\nkind = \"http\"\nurl = \"{url}\"\ninquiry_url = \"{url}/{{idempotency_key}}\"\n"
            )
        };
        [SETTINGS.to_owned(), rail(PLAIN_RAIL), rail(ORDERED_RAIL)].concat()
    }

    async fn look(&mut self) -> Result<Look, Failure> {
        self.numbers = shop::numbers(&self.owner).await?;
        self.counts = self.bank.counts().await?;
        let rates = [self.enqueued.of(self.numbers.enqueued), self.dispatched.of(self.numbers.dispatched)];
        Ok(look_of(&self.numbers, &self.counts, rates))
    }

    /// Leases are short here: what it held is taken over while somebody watches.
    async fn died(&mut self, _worker: &str) -> Result<Option<String>, Failure> {
        Ok(None)
    }

    async fn audit(&mut self) -> Result<Verdict, Failure> {
        verdict::reach(&mut self.owner, &self.bank.ledger()?, self.counts, self.numbers).await
    }
}

/// These numbers, with what was enqueued and dispatched in a second, as they are shown.
pub(super) fn look_of(numbers: &Numbers, bank: &Counts, [enqueued, dispatched]: [u64; 2]) -> Look {
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
            format!("{} wait; the oldest is {oldest} old", grouped(waiting)),
        ),
        Row::new("retried", grouped(numbers.retried), ""),
        Row::new(
            "unknown",
            grouped(numbers.in_doubt),
            format!("the bank was asked {} times", grouped(bank.inquiries)),
        ),
        Row::new("dead letters", grouped(numbers.failed), format!("the bank refused {}", bank.refused)),
        Row::new("latency p50", &p50, format!("p99 {p99}, enqueue to ledger")),
    ];
    let words = format!(
        "enqueued {}, in flight {}, waiting {waiting}, dispatched {} ({dispatched}/s), retried {}, unknown {}, \
         inquired {}, dead letters {}, oldest {oldest}, p50 {p50}, p99 {p99}",
        numbers.enqueued,
        numbers.in_flight,
        numbers.dispatched,
        numbers.retried,
        numbers.in_doubt,
        bank.inquiries,
        numbers.failed,
    );
    Look { open: numbers.pending, rows, words }
}
