//! What the calls cost as the work grows: with more waiting, a longer past, one participant or many. All in turn in one run, as ratios.
//!
//! `cargo bench -p symphony-proof --bench growth` starts a private PostgreSQL for it: up to a million waiting and a million ended, some minutes. The long form is
//! `SYMPHONY_PENDING=10000000` before it (12 GB, 5 minutes), or `SYMPHONY_LEDGER=50000000` (30 GB, 8 minutes): as much as fits into the machine's memory. Exits with 1 if a claim costs more than 1.5 times
//! what it costs with 1,000 waiting, if an enqueue or a completion costs more than 1.15 times as much beside the long ledger, which has 24 partitions, or if a read of the
//! backlog or a repair pass takes more than 50 ms.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot ask the database has failed")]

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use symphony_client::payment::Instruction;
use symphony_client::payment::tokio_postgres::Prepared;
use symphony_db::payment::worker::{self, Claimed};
use symphony_db::payment::{Completion, Outcome, RailAnswer, reader};
use symphony_db::{BatchSize, WorkerId};
use symphony_testkit::{
    bulk_rows,
    test_database::{Database, Server},
};
use tokio_postgres::Client;

const ROUNDS: u64 = 41;
/// How often the backlog is read and repaired, at the end.
const STATUS_ROUNDS: u32 = 21;
/// How many are enqueued one by one, claimed together and completed together in a round.
const STEP: u16 = 100;
/// How much more a claim may cost than with a thousand waiting.
const GOAL: f64 = 1.5;
/// How much more an enqueue or a completion may cost than with an empty ledger.
const LEDGER_GOAL: f64 = 1.15;
/// How many milliseconds a read of the backlog and a repair pass may take.
const READ_GOAL: f64 = 50.0;

/// One database and a session in it.
struct Fixture {
    name: String,
    has_ledger: bool,
    /// Whose instructions are enqueued: so many in turn.
    participants: u64,
    client: Client,
    calls: Prepared,
    _database: Database,
    /// In milliseconds, by call, in the order of [`CALLS`].
    millis: [Vec<f64>; CALLS.len()],
}

const CALLS: [&str; 6] = ["enqueue of 1", "claim of 100", "complete of 100", "status", "overview", "repair"];
/// The first of them that must not grow with what waits.
const FIRST_READ: usize = 3;

impl Fixture {
    async fn new(server: &Server, pending: i32, ended: i32, participants: i32) -> Self {
        let name = match (pending, ended) {
            (pending, 0) => format!("{} waiting, participants: {}", grouped(pending), grouped(participants)),
            (pending, ended) => format!("{} waiting, {} ended", grouped(pending), grouped(ended)),
        };
        eprintln!("filling: {name}");
        let database = server.database().await.unwrap();
        let client = database.connect().await.unwrap();
        bulk_rows::rails(&client).await.unwrap();
        bulk_rows::in_bulk(&client, pending, ended, participants).await.unwrap();
        let calls = Prepared::on(&client).await.unwrap();
        let participants = u64::try_from(participants).unwrap();
        Self {
            name,
            has_ledger: ended > 0,
            participants,
            client,
            calls,
            _database: database,
            millis: Default::default(),
        }
    }

    /// Reads what the claims will touch: it is the work that is compared, not the disk.
    async fn warm(&self) {
        let front = "select count(f.payload) from (
                       select payload from symphony.payment_outbox_pending
                       where rail_type = 'plain' and not parked
                       order by next_attempt_at, created_at limit $1) f";
        let count = i64::try_from(ROUNDS + 2).unwrap() * i64::from(STEP);
        self.client.query(front, &[&count]).await.unwrap();
    }

    /// Enqueues, claims and completes as many as it enqueued.
    async fn round(&mut self, round: u64) {
        let mut took = Vec::new();
        for number in 0..STEP {
            let instruction_id = format!("new-{round}-{number}");
            let key = format!("{instruction_id}/key");
            let participant = (round * u64::from(STEP) + u64::from(number)) * 7919 % self.participants;
            let payload = serde_json::json!({ "amount": "1.00" });
            let instruction =
                Instruction::new(instruction_id, format!("shop-{participant}"), key, "plain", payload);
            let began = Instant::now();
            self.calls.enqueue(&self.client, &instruction).await.unwrap();
            took.push(millis(began));
        }
        self.millis[0].push(median(&took));

        let worker = WorkerId::from("bench");
        let began = Instant::now();
        let size = BatchSize::try_from(STEP).unwrap();
        let claimed = worker::claim(&self.client, &worker, size, Duration::from_secs(60)).await.unwrap();
        self.millis[1].push(millis(began));
        assert_eq!(claimed.len(), usize::from(STEP));

        let dispatched = |claimed: &Claimed| Completion {
            lease: claimed.lease(),
            outcome: Outcome::Dispatched { rail: RailAnswer::default() },
            latency: None,
        };
        let completions: Vec<_> = claimed.iter().map(dispatched).collect();
        let began = Instant::now();
        let completed = worker::complete_batch(&self.client, &worker, &completions).await.unwrap();
        self.millis[2].push(millis(began));
        assert!(completed.iter().all(Result::is_ok));
    }

    /// Reads the backlog as the gauges and `symphony status` do, then as the console does, and runs a repair pass.
    async fn status(&mut self) {
        let began = Instant::now();
        reader::status(&self.client).await.unwrap();
        self.millis[3].push(millis(began));

        let began = Instant::now();
        reader::backlog(&self.client).await.unwrap();
        reader::recent_stats(&self.client).await.unwrap();
        reader::count_dead_letters(&self.client, &reader::DeadLetterFilter::default()).await.unwrap();
        reader::leases(&self.client).await.unwrap();
        self.millis[4].push(millis(began));

        let began = Instant::now();
        worker::repair(&self.client, &WorkerId::from("bench"), BatchSize::MAX).await.unwrap();
        self.millis[5].push(millis(began));
    }
}

fn millis(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// A number with its thousands apart.
fn grouped(number: i32) -> String {
    let digits = number.to_string();
    let groups: Vec<_> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

/// A number from the environment.
fn asked(name: &str, otherwise: i32) -> i32 {
    std::env::var(name).map_or(otherwise, |number| number.parse().unwrap())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let server = Server::from_env().await.unwrap();
    let (most, ledger) = (asked("SYMPHONY_PENDING", 1_000_000), asked("SYMPHONY_LEDGER", 1_000_000));
    let sizes = [(1_000, 0, 100_000), (1_000, 0, 1), (200_000, 0, 1), (1_000_000, 0, 100_000)];
    let large = [(1_000, ledger, 100_000), (most, 0, 100_000)];
    let mut fixtures = Vec::new();
    // The largest first, so that making it drives nothing out of memory that was made before.
    for (pending, ended, participants) in sizes.into_iter().filter(|size| size.0 < most).chain(large).rev() {
        fixtures.insert(0, Fixture::new(&server, pending, ended, participants).await);
    }
    for fixture in &fixtures {
        fixture.warm().await;
    }

    // In turn, so that a noisy moment of the machine hits all of them. The first round reads what is needed into memory.
    for round in 0..=ROUNDS {
        for fixture in &mut fixtures {
            fixture.round(round).await;
            if round == 0 {
                fixture.millis = Default::default();
            }
        }
    }

    for _ in 0..STATUS_ROUNDS {
        for fixture in &mut fixtures {
            fixture.status().await;
        }
    }

    println!(
        "median ms, and ratio to the first line\n{:<45}{}",
        "",
        CALLS.map(|call| format!("{call:>20}")).concat()
    );
    let (mut worst, mut slowest, mut beside_ledger) = (0.0_f64, 0.0_f64, 0.0_f64);
    for fixture in &fixtures {
        let cells = std::array::from_fn::<_, { CALLS.len() }, _>(|call| {
            let (own, first) = (median(&fixture.millis[call]), median(&fixtures[0].millis[call]));
            (own, own / first)
        });
        worst = worst.max(cells[1].1);
        if fixture.has_ledger {
            beside_ledger = beside_ledger.max(cells[0].1).max(cells[2].1);
        }
        slowest = cells[FIRST_READ..].iter().map(|cell| cell.0).fold(slowest, f64::max);
        println!("{:<45}{}", fixture.name, cells.map(|(own, ratio)| format!("{own:>13.3} {ratio:>6.2}")).concat());
    }
    if worst > GOAL {
        eprintln!("a claim costs {worst:.2} times as much as with 1,000 waiting; it should be at most {GOAL}");
        return ExitCode::FAILURE;
    }
    if beside_ledger > LEDGER_GOAL {
        eprintln!(
            "an enqueue or a completion costs {beside_ledger:.2} times as much beside the long ledger; it should be at most {LEDGER_GOAL}"
        );
        return ExitCode::FAILURE;
    }
    if slowest > READ_GOAL {
        eprintln!("a read of the backlog or a repair takes {slowest:.1} ms; it should be at most {READ_GOAL}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
