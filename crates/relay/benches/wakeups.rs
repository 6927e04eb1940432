//! Measures the cost of wake-ups for producers, and the latency from commit to dispatch, in one run.
//!
//! `cargo bench -p symphony-relay --bench wakeups` starts a private PostgreSQL with fsync, and a relayer in this
//! process whose rail only records the time. Exits with 1 if a goal is missed. `-- --short` is a quick run.
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot reach the database has failed")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use symphony_client::payment::{Instruction, tokio_postgres as producer};
use symphony_db::connect::Target;
use symphony_db::listener::Channel;
use symphony_db::payment::RailAnswer;
use symphony_relay::listener::PostgresListener;
use symphony_relay::payment::PaymentLane;
use symphony_relay::rail::{Answer, BoxFuture, Inquiry, Invalid, Payment, Rail};
use symphony_relay::stop::StopHandle;
use symphony_relay::{Engine, Settings};
use symphony_testkit::postgres::{Binaries, Cluster, Options};
use tokio_postgres::Client;

const CLIENTS: usize = 32;
const PER_SECOND: u32 = 100;
const MIN_RATIO: f64 = 0.9;
const MAX_P50: Duration = Duration::from_millis(3);
const MAX_P99: Duration = Duration::from_millis(10);

/// Accepts every payment and records when it arrived.
#[derive(Default)]
struct TimingRail(Mutex<BTreeMap<String, Instant>>);

impl Rail for TimingRail {
    fn validate(&self, _: &Payment) -> Result<(), Invalid> {
        Ok(())
    }
    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer> {
        self.0.lock().unwrap().insert(payment.instruction_id.clone(), Instant::now());
        Box::pin(async { Answer::Executed(RailAnswer::default()) })
    }
    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn supports_inquiry(&self) -> bool {
        false
    }
    fn inquire<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Inquiry> {
        Box::pin(async { Inquiry::NeverSeen })
    }
}

/// The length of each part of the run.
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
    symphony_db::schema::install(&mut owner, &[symphony_db::schema::Lane::Payment]).await.unwrap();
    owner.batch_execute("select symphony.register_payment_rail('clock', '{}', 'bench', 'wakeups')").await.unwrap();

    let rail = Arc::new(TimingRail::default());
    let rails = BTreeMap::from([("clock".to_owned(), Arc::clone(&rail) as Arc<dyn Rail>)]);
    let lane = PaymentLane::new(Arc::clone(&target), "bench".into(), Duration::from_secs(30), rails);
    let (stop, stop_signal) = StopHandle::new();
    let listener = PostgresListener::new(Arc::clone(&target), Channel::PAYMENT);
    let engine = Engine::new(Arc::new(lane), Settings::default()).unwrap();
    let relayer = tokio::spawn(engine.run(Some(listener), stop_signal));

    let mut good = latency(&target, &rail, plan.latency).await;
    good &= throughput(&owner, &target, &plan).await;
    stop.request_stop();
    relayer.await.unwrap();
    if good || short { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Enqueues at a steady rate, and measures the time from each commit to its dispatch.
async fn latency(target: &Target, rail: &TimingRail, length: Duration) -> bool {
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
    // Wait for all of them; the first second is warm-up.
    while rail.0.lock().unwrap().len() < times.len() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let arrived = rail.0.lock().unwrap();
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
    println!("  commit to dispatch: p50 {p50:.2?}, p99 {p99:.2?} (goal: {MAX_P50:?}, {MAX_P99:?})");
    println!("  call to dispatch:   p50 {call_p50:.2?}, p99 {call_p99:.2?}");
    p50 < MAX_P50 && p99 < MAX_P99
}

/// Enqueues from many sessions at full speed, alternating with and without the trigger.
async fn throughput(owner: &Client, target: &Arc<Target>, plan: &Plan) -> bool {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        with.push(rate(target, &format!("with-{round}"), plan.round).await);
        owner
            .batch_execute(
                "alter table symphony.payment_outbox_pending disable trigger pending_notifies_idle_relayers",
            )
            .await
            .unwrap();
        without.push(rate(target, &format!("without-{round}"), plan.round).await);
        owner
            .batch_execute(
                "alter table symphony.payment_outbox_pending enable trigger pending_notifies_idle_relayers",
            )
            .await
            .unwrap();
    }
    let ratios: Vec<_> = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    let ratio = median(&ratios);
    println!("{CLIENTS} clients, one enqueue per transaction, {} rounds", plan.rounds);
    println!("  with wake-ups {:.0}/s, without {:.0}/s (medians)", median(&with), median(&without));
    println!("  ratio {ratio:.2}, the median of the rounds (goal: {MIN_RATIO})");
    ratio >= MIN_RATIO
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
    let instruction = Instruction::new(
        instruction,
        participant,
        instruction,
        "clock",
        serde_json::json!({ "amount": "10.50", "currency": "EUR" }),
    );
    producer::enqueue(client, &instruction).await.unwrap();
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
