//! A random mix of everything that may happen to outboxes, by several workers at once.
//!
//! It counts what it is told by the functions, so that a proof can hold that against what the tables say.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::clock::{expire, make_due};
use super::crew::{
    Crew, Lease, Order, Outcome, claim, complete, complete_batch, count, enqueue, enqueue_batch, redrive, release,
    renew, repair, resolve, set_rail,
};
use super::dice::Dice;
use super::evidence::{Failure, code};
use crate::kit::scratch::Database;

const WORKERS: usize = 6;
const STEPS: usize = 70;
const PARTICIPANTS: [&str; 5] = ["alice", "bob", "carol", "dave", "erin"];
const RAILS: [(&str, &str); 4] = [
    ("plain", "{}"),
    ("ordered", r#"{"ordered": true}"#),
    ("capped", r#"{"max_in_flight": 7}"#),
    ("strict", r#"{"max_attempts": 2}"#),
];

/// What the functions said they did.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Rows that claims handed out.
    pub(super) granted: i64,
    /// Tokens of those, all of them different.
    pub(super) tokens: HashSet<String>,
    /// Leases that a release gave back.
    pub(super) given_back: i64,
    /// Outcomes that a completion recorded.
    pub(super) recorded: i64,
    /// Leases that a repair ended.
    pub(super) repaired: i64,
    /// Completions, releases and renewals refused because the lease was lost.
    pub(super) lost: i64,
    /// Leases that the owner let run out.
    pub(super) expired: i64,
    /// Outboxes that were made, redrives included.
    pub(super) made: i64,
    /// Redrives among them.
    pub(super) redriven: i64,
}

type Shared = Arc<Mutex<Tally>>;

fn note(tally: &Shared, change: impl FnOnce(&mut Tally)) {
    change(&mut tally.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Runs the mix to its end; nobody acts any more when it returns.
pub(super) async fn run(database: &Database, seed: u64) -> Result<Tally, Failure> {
    let crew = Crew::hire(database).await?;
    for (rail, policy) in RAILS {
        set_rail(&crew.operator, rail, policy).await?;
    }
    let tally = Shared::default();
    let orders: Vec<Order> =
        (0..80).map(|number| order(&mut Dice::new(seed, 1000 + number), &format!("{number}"))).collect();
    let made = enqueue_batch(&crew.ingest, &orders).await?.len();
    note(&tally, |tally| tally.made += i64::try_from(made).unwrap_or_default());

    let mut tasks = JoinSet::new();
    for number in 0..WORKERS {
        let worker = Worker {
            name: format!("worker-{number}"),
            dice: Dice::new(seed, number),
            crew: Crew::hire(database).await?,
            held: Vec::new(),
            tally: Arc::clone(&tally),
        };
        tasks.spawn(worker.work());
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Worker {
        name: "last".into(),
        dice: Dice::new(seed, WORKERS),
        crew: Crew::hire(database).await?,
        held: Vec::new(),
        tally: Arc::clone(&tally),
    }
    .do_each_once()
    .await?;
    let tally = std::mem::take(&mut *tally.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(tally)
}

fn order(dice: &mut Dice, name: &str) -> Order {
    let participant = *dice.any(&PARTICIPANTS);
    Order::new(name, participant, dice.any(&RAILS).0)
}

struct Worker {
    name: String,
    dice: Dice,
    crew: Crew,
    held: Vec<Lease>,
    tally: Shared,
}

impl Worker {
    async fn work(mut self) -> Result<(), Failure> {
        for step in 0..STEPS {
            match self.dice.below(100) {
                0..30 => self.claim().await?,
                30..55 => self.complete_one().await?,
                55..62 => self.complete_some().await?,
                62..69 => self.release_some().await?,
                69..73 => self.renew_some().await?,
                73..81 => self.let_expire().await?,
                81..85 => self.repair().await?,
                85..90 => make_due(&self.crew.owner).await?,
                90..95 => self.act_as_operator().await?,
                95..98 => self.enqueue(step).await?,
                // Dies: whatever it held is nobody's.
                _ => self.held.clear(),
            }
        }
        Ok(())
    }

    /// One of each, whatever the dice said; some of what is leased stays so.
    async fn do_each_once(mut self) -> Result<(), Failure> {
        for name in ["late", "unstarted", "failed", "live"] {
            enqueue(&self.crew.ingest, &Order::new(name, "frank", "plain")).await?;
            note(&self.tally, |tally| tally.made += 1);
        }
        // Whatever else is due may come first.
        for _ in 0..20 {
            self.claim().await?;
        }
        let [late, unstarted, failed, ..] = self.held.as_slice() else {
            return Err(Failure {
                tried: "claiming 4 rows that nobody else wants".into(),
                expected: "at least 4 leases".into(),
                happened: format!("{} leases", self.held.len()),
            });
        };
        let (late, unstarted, failed) = (late.clone(), unstarted.clone(), failed.clone());
        expire(&self.crew.owner, &late.outbox_id).await?;
        self.repair().await?;
        self.held = vec![late];
        self.complete_one().await?;
        let released = release(&self.crew.executor, &[unstarted]).await?.len();
        complete(&self.crew.executor, &failed, Outcome::REJECTED).await?;
        redrive(&self.crew.operator, &failed.outbox_id).await?;
        note(&self.tally, |tally| {
            tally.given_back += i64::try_from(released).unwrap_or_default();
            tally.expired += 1;
            tally.recorded += 1;
            tally.made += 1;
            tally.redriven += 1;
        });
        Ok(())
    }

    async fn claim(&mut self) -> Result<(), Failure> {
        let leases = claim(&self.crew.executor, self.dice.up_to(6), &self.name).await?;
        note(&self.tally, |tally| {
            tally.granted += i64::try_from(leases.len()).unwrap_or_default();
            tally.tokens.extend(leases.iter().map(|lease| lease.token.clone()));
        });
        self.held.extend(leases);
        Ok(())
    }

    fn outcome(&mut self) -> Outcome<'static> {
        *self.dice.any(&[
            Outcome::DISPATCHED,
            Outcome::DISPATCHED,
            Outcome::REJECTED,
            Outcome::UNKNOWN,
            Outcome::AGAIN,
            Outcome::AGAIN,
            Outcome::RETRYABLE,
        ])
    }

    async fn complete_one(&mut self) -> Result<(), Failure> {
        if self.held.is_empty() {
            return Ok(());
        }
        let lease = self.held.swap_remove(self.dice.below(self.held.len()));
        let outcome = self.outcome();
        match complete(&self.crew.executor, &lease, outcome).await {
            Ok(_) => note(&self.tally, |tally| tally.recorded += 1),
            Err(error) if matches!(code(&error), "P7001" | "P7002") => note(&self.tally, |tally| tally.lost += 1),
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
        for result in complete_batch(&self.crew.executor, &leases, outcome).await? {
            note(&self.tally, |tally| if result.is_ok() { tally.recorded += 1 } else { tally.lost += 1 });
        }
        Ok(())
    }

    async fn release_some(&mut self) -> Result<(), Failure> {
        let leases = self.take_some();
        if leases.is_empty() {
            return Ok(());
        }
        for released in release(&self.crew.executor, &leases).await? {
            note(&self.tally, |tally| if released { tally.given_back += 1 } else { tally.lost += 1 });
        }
        Ok(())
    }

    async fn renew_some(&mut self) -> Result<(), Failure> {
        if self.held.is_empty() {
            return Ok(());
        }
        let renewed = renew(&self.crew.executor, &self.held).await?;
        let before = self.held.len();
        let mut still = renewed.into_iter();
        self.held.retain(|_| still.next() == Some(true));
        let lost = i64::try_from(before - self.held.len()).unwrap_or_default();
        note(&self.tally, |tally| tally.lost += lost);
        Ok(())
    }

    /// Lets a lease run out, its own or another's.
    async fn let_expire(&mut self) -> Result<(), Failure> {
        let leased = "select outbox_id::text from symphony.payment_outbox_pending where lease_expires_at > now() order by 1";
        let leased: Vec<String> = self.crew.owner.query(leased, &[]).await?.iter().map(|row| row.get(0)).collect();
        if leased.is_empty() {
            return Ok(());
        }
        let outbox_id = self.dice.any(&leased).clone();
        if expire(&self.crew.owner, &outbox_id).await? {
            note(&self.tally, |tally| tally.expired += 1);
        }
        Ok(())
    }

    async fn repair(&mut self) -> Result<(), Failure> {
        let repaired = repair(&self.crew.executor, self.dice.up_to(5)).await?.len();
        note(&self.tally, |tally| tally.repaired += i64::try_from(repaired).unwrap_or_default());
        Ok(())
    }

    /// Resolves a dead letter whose outcome is unknown, or tries one again.
    async fn act_as_operator(&mut self) -> Result<(), Failure> {
        let dead = "select outbox_id::text, outcome_unknown from symphony.payment_outbox_dlq order by 1 limit 1";
        let Some(row) = self.crew.operator.query_opt(dead, &[]).await? else { return Ok(()) };
        let (outbox_id, outcome_unknown): (String, bool) = (row.get(0), row.get(1));
        // Another worker may be at the same one: then this one comes too late, which is P7003.
        if outcome_unknown {
            let resolution = *self.dice.any(&["PAID", "NOT_PAID"]);
            if !done(resolve(&self.crew.operator, &outbox_id, resolution).await, "P7003")? || resolution == "PAID"
            {
                return Ok(());
            }
        }
        if done(redrive(&self.crew.operator, &outbox_id).await, "P7003")? {
            note(&self.tally, |tally| {
                tally.made += 1;
                tally.redriven += 1;
            });
        }
        Ok(())
    }

    async fn enqueue(&mut self, step: usize) -> Result<(), Failure> {
        let name = format!("{}-{step}", self.name);
        let order = order(&mut self.dice, &name);
        enqueue(&self.crew.ingest, &order).await?;
        note(&self.tally, |tally| tally.made += 1);
        Ok(())
    }

    fn take_some(&mut self) -> Vec<Lease> {
        let keep = self.dice.below(self.held.len() + 1);
        self.held.split_off(keep)
    }
}

/// Whether it was done; this refusal means that another was faster, any other is an error.
fn done<T>(result: Result<T, tokio_postgres::Error>, refusal: &str) -> Result<bool, Failure> {
    match result {
        Ok(_) => Ok(true),
        Err(error) if code(&error) == refusal => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// How many rows of the ledger are in this state.
pub(super) async fn ledger_rows(client: &Client, state: &str) -> Result<i64, Failure> {
    let rows = "select count(*) from symphony.payment_outbox_attempts where state::text = $1";
    Ok(count(client, rows, &[&state]).await?)
}
