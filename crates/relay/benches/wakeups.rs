//! What wake-ups cost the writers, and how soon work is picked up, measured in one run.
//!
//! `cargo bench -p symphony-relay --bench wakeups` starts a private PostgreSQL with fsync, and a relayer in this process whose
//! rail does nothing but look at the clock. Exits with 1 where a goal is missed. `-- --short` is a quick look.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot ask the database has failed")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use symphony_outbox::connect::Target;
use symphony_outbox::listener::Channel;
use symphony_outbox::payment::{Instruction, RailAnswer, producer};
use symphony_proof::kit::postgres::{Binaries, Cluster, Options};
use symphony_relay::listener::PostgresListener;
use symphony_relay::payment::PaymentLane;
use symphony_relay::rail::{Answer, BoxFuture, Inquiry, Invalid, Payment, Rail};
use symphony_relay::stop::StopHandle;
use symphony_relay::{Engine, Settings};
use tokio_postgres::Client;

const CLIENTS: usize = 32;
const PER_SECOND: u32 = 100;
const LEAST_RATIO: f64 = 0.9;
const MOST_P50: Duration = Duration::from_millis(3);
const MOST_P99: Duration = Duration::from_millis(10);

/// Accepts everything, and remembers when each instruction arrived.
#[derive(Default)]
struct Clock(Mutex<BTreeMap<String, Instant>>);

impl Rail for Clock {
    fn validate(&self, _: &Payment) -> Result<(), Invalid> {
        Ok(())
    }
    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer> {
        self.0.lock().unwrap().insert(payment.instruction_id.clone(), Instant::now());
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

/// How long each part takes.
struct Plan {
    latency: Duration,
    round: Duration,
    rounds: usize,
}

#[tokio::main]
async fn main() -> ExitCode {
    let short = std::env::args().any(|argument| argument == "--short");
    let plan = if short {
        Plan { latency: Duration::from_secs(3), round: Duration::from_millis(500), rounds: 3 }
    } else {
        Plan { latency: Duration::from_secs(30), round: Duration::from_secs(4), rounds: 7 }
    };
    let options = Options { durable: true, ..Options::default() };
    let cluster = Cluster::start(&Binaries::find().unwrap(), options).await.unwrap();
    let target = Arc::new(Target::parse(&cluster.url("postgres")).unwrap());
    let mut owner = target.connect().await.unwrap();
    symphony_outbox::schema::install(&mut owner, &[symphony_outbox::schema::Lane::Payment]).await.unwrap();
    owner.batch_execute("select symphony.register_payment_rail('clock', '{}', 'bench', 'wakeups')").await.unwrap();

    let clock = Arc::new(Clock::default());
    let rails = BTreeMap::from([("clock".to_owned(), Arc::clone(&clock) as Arc<dyn Rail>)]);
    let lane = PaymentLane::new(Arc::clone(&target), "bench".into(), Duration::from_secs(30), rails);
    let (stop, signal) = StopHandle::new();
    let listener = PostgresListener::new(Arc::clone(&target), Channel::PAYMENT);
    let engine = Engine::new(Arc::new(lane), Settings::default()).unwrap();
    let relayer = tokio::spawn(engine.run(Some(listener), signal));

    let mut good = latency(&target, &clock, plan.latency).await;
    good &= throughput(&owner, &target, &plan).await;
    stop.signal();
    relayer.await.unwrap();
    if good || short { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Enqueues at a steady pace, and looks how long after its commit each was dispatched.
async fn latency(target: &Target, clock: &Clock, length: Duration) -> bool {
    let client = target.connect().await.unwrap();
    let mut times = Vec::new();
    let mut tick = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
    let end = Instant::now() + length;
    let mut number = 0_u32;
    while Instant::now() < end {
        tick.tick().await;
        number += 1;
        let name = format!("latency-{number}");
        let called = Instant::now();
        enqueue(&client, &name, &name).await;
        times.push((name, called, Instant::now()));
    }
    // All of them arrive, and the first second is for warming up.
    while clock.0.lock().unwrap().len() < times.len() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let arrived = clock.0.lock().unwrap();
    let since = |begin: fn(&(String, Instant, Instant)) -> Instant| {
        let mut all: Vec<_> = times
            .iter()
            .skip(PER_SECOND as usize)
            .map(|time| arrived[&time.0].saturating_duration_since(begin(time)))
            .collect();
        all.sort();
        (all[all.len() / 2], all[all.len() * 99 / 100])
    };
    let (p50, p99) = since(|time| time.2);
    let (call_p50, call_p99) = since(|time| time.1);
    println!("{PER_SECOND} enqueues a second, {} in all", times.len());
    println!("  commit to dispatch: p50 {p50:.2?}, p99 {p99:.2?} (goal: {MOST_P50:?}, {MOST_P99:?})");
    println!("  call to dispatch:   p50 {call_p50:.2?}, p99 {call_p99:.2?}");
    p50 < MOST_P50 && p99 < MOST_P99
}

/// Enqueues from many sessions as fast as they can, in turn with the trigger and without it.
async fn throughput(owner: &Client, target: &Arc<Target>, plan: &Plan) -> bool {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        with.push(rate(target, &format!("with-{round}"), plan.round).await);
        owner
            .batch_execute("alter table symphony.payment_outbox_pending disable trigger pending_wakes_sleepers")
            .await
            .unwrap();
        without.push(rate(target, &format!("without-{round}"), plan.round).await);
        owner
            .batch_execute("alter table symphony.payment_outbox_pending enable trigger pending_wakes_sleepers")
            .await
            .unwrap();
    }
    let ratios: Vec<_> = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    let ratio = median(&ratios);
    println!("{CLIENTS} clients, one enqueue a transaction, {} rounds", plan.rounds);
    println!("  with wake-ups {:.0}/s, without {:.0}/s (medians)", median(&with), median(&without));
    println!("  ratio {ratio:.2}, the median of the rounds (goal: {LEAST_RATIO})");
    ratio >= LEAST_RATIO
}

async fn rate(target: &Arc<Target>, name: &str, length: Duration) -> f64 {
    let began = Instant::now();
    let end = began + length;
    let mut clients = Vec::new();
    for client in 0..CLIENTS {
        let (target, name) = (Arc::clone(target), format!("{name}-{client}"));
        clients.push(tokio::spawn(async move {
            let session = target.connect().await.unwrap();
            let mut count = 0_u32;
            while Instant::now() < end {
                count += 1;
                enqueue(&session, &format!("{name}-{count}"), &name).await;
            }
            count
        }));
    }
    let mut count = 0;
    for client in clients {
        count += client.await.unwrap();
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

async fn enqueue(client: &Client, instruction: &str, participant: &str) {
    let instruction = Instruction {
        instruction_id: instruction.into(),
        participant_id: participant.into(),
        idempotency_key: instruction.into(),
        rail_type: "clock".into(),
        payload: serde_json::json!({ "amount": "10.50", "currency": "EUR" }).into(),
    };
    producer::enqueue(client, &instruction).await.unwrap();
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
