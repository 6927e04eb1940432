//! Enqueues, claims and completions while partitions are archived: none waits.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio_postgres::Client;

use crate::fixture::Fixture;

/// The longest wait for a lock that a call of producers and workers may have. PostgreSQL enforces it.
const LONGEST_WAIT: &str = "set lock_timeout = '300ms'";

const ENQUEUE: &str = "select count(*) from (
    select symphony.enqueue_payment_outbox('load-' || gen_random_uuid(), 'p-' || i, 'k', 'bank', '{\"amount\": \"1.00\"}')
    from generate_series(1, 10) i) e";
const WORK: &str = "
    with leased as materialized (
      select array_agg(l.outbox_id) as ids, array_agg(l.lease_token) as tokens,
             array_agg('DISPATCHED'::symphony.outbox_attempt_state) as states
      from symphony.claim_outbox_batch(50, 'worker', 60) l
    )
    select count(*) from (select * from leased where ids is not null) l, symphony.complete_outbox_batch(l.ids, l.tokens, 'worker', l.states) c
    where c.state is not null";

/// Repeats a call until it is told to stop. Returns how many calls there were, and the longest.
async fn repeat(client: Client, call: &'static str, stop: Arc<AtomicBool>) -> (usize, Duration) {
    client.batch_execute(LONGEST_WAIT).await.unwrap();
    let (mut calls, mut longest) = (0, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        client.query_one(call, &[]).await.unwrap();
        longest = longest.max(began.elapsed());
        calls += 1;
    }
    (calls, longest)
}

#[tokio::test(flavor = "multi_thread")]
async fn enqueues_claims_and_completions_do_not_wait_for_an_archive() {
    let fixture = Fixture::new(4).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = Vec::new();
    for call in [ENQUEUE, ENQUEUE, WORK, WORK] {
        let client = fixture.database.connect().await.unwrap();
        load.push(tokio::spawn(repeat(client, call, Arc::clone(&stop))));
    }
    // A report that holds the ledger: the archive has to wait for it, and nothing else may.
    let reader = fixture.database.connect().await.unwrap();
    reader.batch_execute("begin; select count(*) from symphony.payment_outbox_attempts").await.unwrap();
    let mut run = fixture.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let detaching = "select count(*) from symphony.payment_ledger_partitions() where is_detaching";
    until("the partition is being detached", DEFAULT_TIMEOUT, async || fixture.number(detaching).await == 1)
        .await
        .unwrap();
    let completed = "select count(*) from symphony.payment_outbox_attempts where instruction_id like 'load-%'";
    let before = fixture.number(completed).await;
    until("completions go on meanwhile", DEFAULT_TIMEOUT, async || fixture.number(completed).await > before + 200)
        .await
        .unwrap();
    reader.batch_execute("commit").await.unwrap();
    until("the archive has ended", DEFAULT_TIMEOUT, async || run.try_wait().unwrap().is_some()).await.unwrap();
    assert!(run.wait().unwrap().success());
    stop.store(true, Ordering::Relaxed);
    for (name, task) in ["enqueue", "enqueue", "claim and complete", "claim and complete"].into_iter().zip(load) {
        let (calls, longest) = task.await.unwrap();
        println!("{name}: {calls} calls, the longest {longest:?}");
        assert!(calls > 10, "{name}: {calls} calls");
    }
    fixture.starts_at_the_lowest_id().await;
}
