//! A workload generator: several workers make random calls on the same outboxes at once.
//!
//! It counts the results of the functions, so that a proof can compare them with the tables.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::evidence::{Failure, sqlstate};
use super::seeded_rng::SeededRng;
use super::sessions::{
    Lease, Outcome, Payment, Sessions, cancel, claim, complete, complete_batch, confirm, count, enqueue,
    enqueue_batch, redrive, release, renew, repair, resolve, set_rail,
};
use symphony_testkit::test_database::Database;

const WORKERS: usize = 6;
const STEPS: usize = 70;
const PARTICIPANTS: [&str; 5] = ["alice", "bob", "carol", "dave", "erin"];
const RAILS: [(&str, &str); 4] = [
    ("plain", "{}"),
    ("ordered", r#"{"ordered": true, "publish_outcomes": true}"#),
    ("capped", r#"{"max_in_flight": 7}"#),
    ("strict", r#"{"max_attempts": 2, "publish_outcomes": true}"#),
];

/// The results of the functions.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Rows that claims returned.
    pub(super) granted: i64,
    /// Tokens of those, all of them different.
    pub(super) tokens: HashSet<String>,
    /// Leases that were released.
    pub(super) released: i64,
    /// Outcomes that a completion recorded.
    pub(super) recorded: i64,
    /// Confirmations that settled a payment.
    pub(super) confirmed: i64,
    /// Leases that a repair ended.
    pub(super) repaired: i64,
    /// Completions, releases and renewals refused because the lease was lost.
    pub(super) lost: i64,
    /// Leases that the owner let expire.
    pub(super) expired: i64,
    /// Outboxes that were created, redrives included.
    pub(super) made: i64,
    /// Redrives among them.
    pub(super) redriven: i64,
    /// Outboxes that were cancelled.
    pub(super) cancelled: i64,
}

type Shared = Arc<Mutex<Tally>>;

fn note(tally: &Shared, change: impl FnOnce(&mut Tally)) {
    change(&mut tally.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Runs the workload. No worker is active when it returns.
pub(super) async fn run(database: &Database, seed: u64) -> Result<Tally, Failure> {
    let sessions = Sessions::connect(database).await?;
    for (rail, policy) in RAILS {
        set_rail(&sessions.operator, rail, policy).await?;
    }
    let tally = Shared::default();
    let payments: Vec<Payment> =
        (0..80).map(|number| payment(&mut SeededRng::new(seed, 1000 + number), &format!("{number}"))).collect();
    let made = enqueue_batch(&sessions.ingest, &payments).await?.len();
    note(&tally, |tally| tally.made += i64::try_from(made).unwrap_or_default());

    let mut tasks = JoinSet::new();
    for number in 0..WORKERS {
        let worker = Worker {
            name: format!("worker-{number}"),
            rng: SeededRng::new(seed, number),
            sessions: Sessions::connect(database).await?,
            leases: Vec::new(),
            tally: Arc::clone(&tally),
        };
        tasks.spawn(worker.work());
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Worker {
        name: "last".into(),
        rng: SeededRng::new(seed, WORKERS),
        sessions: Sessions::connect(database).await?,
        leases: Vec::new(),
        tally: Arc::clone(&tally),
    }
    .do_each_once()
    .await?;
    let tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(tally)
}

fn payment(rng: &mut SeededRng, name: &str) -> Payment {
    let participant = *rng.pick(&PARTICIPANTS);
    Payment::new(name, participant, rng.pick(&RAILS).0)
}

struct Worker {
    name: String,
    rng: SeededRng,
    sessions: Sessions,
    leases: Vec<Lease>,
    tally: Shared,
}

impl Worker {
    async fn work(mut self) -> Result<(), Failure> {
        for step in 0..STEPS {
            match self.rng.below(100) {
                0..30 => self.claim().await?,
                30..55 => self.complete_one().await?,
                55..62 => self.complete_some().await?,
                62..69 => self.release_some().await?,
                69..73 => self.renew_some().await?,
                73..81 => self.let_expire().await?,
                81..85 => self.repair().await?,
                85..88 => make_due(&self.sessions.owner).await?,
                88..91 => self.confirm(step).await?,
                91..95 => self.act_as_operator().await?,
                95..98 => self.enqueue(step).await?,
                98 => self.cancel().await?,
                // The worker dies and forgets its leases.
                _ => self.leases.clear(),
            }
        }
        Ok(())
    }

    /// One of each case, whatever the seed; some leases stay live.
    async fn do_each_once(mut self) -> Result<(), Failure> {
        let cancelled = Payment::new("cancelled", "frank", "plain");
        enqueue(&self.sessions.ingest, &cancelled).await?;
        cancel(&self.sessions.ingest, &cancelled).await?;
        note(&self.tally, |tally| {
            tally.made += 1;
            tally.cancelled += 1;
        });
        for name in ["late", "unstarted", "failed", "accepted", "live"] {
            enqueue(&self.sessions.ingest, &Payment::new(name, "frank", "plain")).await?;
            note(&self.tally, |tally| tally.made += 1);
        }
        // Other due rows may come first.
        for _ in 0..20 {
            self.claim().await?;
        }
        let [late, unstarted, failed, accepted, ..] = self.leases.as_slice() else {
            return Err(Failure {
                tried: "claiming 5 rows without other claimers".into(),
                expected: "at least 5 leases".into(),
                happened: format!("{} leases", self.leases.len()),
            });
        };
        let (late, unstarted, failed, accepted) =
            (late.clone(), unstarted.clone(), failed.clone(), accepted.clone());
        expire(&self.sessions.owner, &late.outbox_id).await?;
        self.repair().await?;
        self.leases = vec![late];
        self.complete_one().await?;
        let released = release(&self.sessions.executor, &[unstarted]).await?.len();
        complete(&self.sessions.executor, &failed, Outcome::REJECTED).await?;
        redrive(&self.sessions.operator, &failed.outbox_id).await?;
        // It has a lease no more when it is confirmed. At the last attempt of its rail it would end at once.
        let recorded = complete(&self.sessions.executor, &accepted, Outcome::ACCEPTED).await?;
        let payment = (accepted.rail.as_str(), accepted.key.as_str());
        let (result, _) = confirm(&self.sessions.executor, payment, "EXECUTED", "the last one", None).await?;
        let settled = i64::from(result == "SETTLED" && !recorded.ended);
        note(&self.tally, |tally| {
            tally.released += i64::try_from(released).unwrap_or_default();
            tally.expired += 1;
            tally.recorded += 2;
            tally.confirmed += settled;
            tally.made += 1;
            tally.redriven += 1;
        });
        Ok(())
    }

    async fn claim(&mut self) -> Result<(), Failure> {
        let leases = claim(&self.sessions.executor, self.rng.up_to(6), &self.name).await?;
        note(&self.tally, |tally| {
            tally.granted += i64::try_from(leases.len()).unwrap_or_default();
            tally.tokens.extend(leases.iter().map(|lease| lease.token.clone()));
        });
        self.leases.extend(leases);
        Ok(())
    }

    fn outcome(&mut self) -> Outcome<'static> {
        *self.rng.pick(&[
            Outcome::DISPATCHED,
            Outcome::DISPATCHED,
            Outcome::REJECTED,
            Outcome::UNKNOWN,
            Outcome::RETRY_NOW,
            Outcome::RETRY_NOW,
            Outcome::RETRYABLE,
            Outcome::ACCEPTED,
        ])
    }

    async fn complete_one(&mut self) -> Result<(), Failure> {
        if self.leases.is_empty() {
            return Ok(());
        }
        let lease = self.leases.swap_remove(self.rng.below(self.leases.len()));
        let outcome = self.outcome();
        match complete(&self.sessions.executor, &lease, outcome).await {
            Ok(_) => note(&self.tally, |tally| tally.recorded += 1),
            Err(error) if matches!(sqlstate(&error), "P7001" | "P7002") => {
                note(&self.tally, |tally| tally.lost += 1);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn complete_some(&mut self) -> Result<(), Failure> {
        let leases = self.take_some();
        if leases.is_empty() {
            return Ok(());
        }
        let outcome = self.outcome();
        for result in complete_batch(&self.sessions.executor, &leases, outcome).await? {
            note(&self.tally, |tally| if result.is_ok() { tally.recorded += 1 } else { tally.lost += 1 });
        }
        Ok(())
    }

    async fn release_some(&mut self) -> Result<(), Failure> {
        let leases = self.take_some();
        if leases.is_empty() {
            return Ok(());
        }
        for released in release(&self.sessions.executor, &leases).await? {
            note(&self.tally, |tally| if released { tally.released += 1 } else { tally.lost += 1 });
        }
        Ok(())
    }

    async fn renew_some(&mut self) -> Result<(), Failure> {
        if self.leases.is_empty() {
            return Ok(());
        }
        let renewed = renew(&self.sessions.executor, &self.leases).await?;
        let before = self.leases.len();
        let mut still = renewed.into_iter();
        self.leases.retain(|_| still.next() == Some(true));
        let lost = i64::try_from(before - self.leases.len()).unwrap_or_default();
        note(&self.tally, |tally| tally.lost += lost);
        Ok(())
    }

    /// Lets a random lease expire, its own or that of another worker.
    async fn let_expire(&mut self) -> Result<(), Failure> {
        let leased = "select outbox_id::text from symphony.payment_outbox_pending where lease_expires_at > now() order by 1";
        let leased: Vec<String> =
            self.sessions.owner.query(leased, &[]).await?.iter().map(|row| row.get(0)).collect();
        if leased.is_empty() {
            return Ok(());
        }
        let outbox_id = self.rng.pick(&leased).clone();
        if expire(&self.sessions.owner, &outbox_id).await? {
            note(&self.tally, |tally| tally.expired += 1);
        }
        Ok(())
    }

    async fn repair(&mut self) -> Result<(), Failure> {
        let repaired = repair(&self.sessions.executor, self.rng.up_to(5)).await?.len();
        note(&self.tally, |tally| tally.repaired += i64::try_from(repaired).unwrap_or_default());
        Ok(())
    }

    /// Resolves a dead letter of unknown outcome, or redrives one.
    async fn act_as_operator(&mut self) -> Result<(), Failure> {
        let dead = "select outbox_id::text, outcome_unknown from symphony.payment_outbox_dlq order by 1 limit 1";
        let Some(row) = self.sessions.operator.query_opt(dead, &[]).await? else { return Ok(()) };
        let (outbox_id, outcome_unknown): (String, bool) = (row.get(0), row.get(1));
        // Another worker may have resolved or redriven it first: P7003.
        if outcome_unknown {
            let resolution = *self.rng.pick(&["PAID", "NOT_PAID"]);
            if !done(resolve(&self.sessions.operator, &outbox_id, resolution).await, "P7003")?
                || resolution == "PAID"
            {
                return Ok(());
            }
        }
        if done(redrive(&self.sessions.operator, &outbox_id).await, "P7003")? {
            note(&self.tally, |tally| {
                tally.made += 1;
                tally.redriven += 1;
            });
        }
        Ok(())
    }

    /// Cancels a random pending payment, if it may be.
    async fn cancel(&mut self) -> Result<(), Failure> {
        let pending = "select instruction_id::text, idempotency_key::text from symphony.payment_outbox_pending order by outbox_id";
        let pending = self.sessions.owner.query(pending, &[]).await?;
        if pending.is_empty() {
            return Ok(());
        }
        let row = self.rng.pick(&pending);
        let payment = Payment { instruction: row.get(0), key: row.get(1), ..Payment::new("", "", "") };
        match cancel(&self.sessions.ingest, &payment).await {
            Ok(_) => note(&self.tally, |tally| tally.cancelled += 1),
            Err(error) if matches!(sqlstate(&error), "P7001" | "P7002") => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn enqueue(&mut self, step: usize) -> Result<(), Failure> {
        let name = format!("{}-{step}", self.name);
        let payment = payment(&mut self.rng, &name);
        enqueue(&self.sessions.ingest, &payment).await?;
        note(&self.tally, |tally| tally.made += 1);
        Ok(())
    }

    /// The bank confirms a random payment, leased or not, accepted or not.
    async fn confirm(&mut self, step: usize) -> Result<(), Failure> {
        let pending = "select rail_type, idempotency_key from symphony.payment_outbox_pending order by outbox_id";
        let pending: Vec<(String, String)> =
            self.sessions.owner.query(pending, &[]).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
        if pending.is_empty() {
            return Ok(());
        }
        let (rail, key) = self.rng.pick(&pending).clone();
        let outcome = *self.rng.pick(&["EXECUTED", "REFUSED"]);
        let message = format!("{} {step}", self.name);
        let (result, _) = confirm(&self.sessions.executor, (&rail, &key), outcome, &message, None).await?;
        if result == "SETTLED" {
            note(&self.tally, |tally| tally.confirmed += 1);
        }
        Ok(())
    }

    fn take_some(&mut self) -> Vec<Lease> {
        let keep = self.rng.below(self.leases.len() + 1);
        self.leases.split_off(keep)
    }
}

/// Whether the call succeeded. This SQLSTATE means that another worker was first; any other is an error.
fn done<T>(result: Result<T, tokio_postgres::Error>, refusal: &str) -> Result<bool, Failure> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if sqlstate(&error) == refusal => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The number of ledger rows in this state.
pub(super) async fn ledger_rows(client: &Client, state: &str) -> Result<i64, Failure> {
    let rows = "select count(*) from symphony.payment_outbox_attempts where state::text = $1";
    Ok(count(client, rows, &[&state]).await?)
}
