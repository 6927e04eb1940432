//! The transactions that an idle relayer costs the database.

use std::time::Duration;

use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::Harness;
use crate::relayer::Relayer;

const MEASURED_TIME: Duration = Duration::from_secs(10);
/// PostgreSQL may count a session's last transactions this late. Those of the start and of the payments must not fall
/// into the measured time.
const STATISTICS_DELAY: Duration = Duration::from_secs(11);
/// Limit for one relayer with all its sessions.
const MAX_TRANSACTIONS_PER_SECOND: f64 = 5.0;

/// Transactions in this database, without that of this query.
async fn transactions(harness: &Harness) -> i64 {
    // PostgreSQL counts the query in another database.
    let elsewhere = harness.database.target().database("postgres").connect().await.unwrap();
    let query = "select xact_commit + xact_rollback from pg_stat_database where datname = $1";
    elsewhere.query_one(query, &[&harness.database.name()]).await.unwrap().get(0)
}

async fn transactions_per_second(harness: &Harness, relayers: &[Relayer]) -> f64 {
    for relayer in relayers {
        let condition = async || relayer.metric_sum("symphony_listener_connected").await == 1;
        until("it listens", DEFAULT_TIMEOUT, condition).await.unwrap();
    }
    tokio::time::sleep(STATISTICS_DELAY).await;
    let before = transactions(harness).await;
    let began = tokio::time::Instant::now();
    tokio::time::sleep(MEASURED_TIME).await;
    let cost = transactions(harness).await - before;
    f64::from(i32::try_from(cost).unwrap()) / began.elapsed().as_secs_f64()
}

/// Transactions a second of this many relayers that have dispatched some payments and are idle.
async fn cost(relayers: usize) -> f64 {
    let harness = Harness::start().await;
    let settings = harness.settings().payment_defaults();
    let mut running = Vec::new();
    for _ in 0..relayers {
        running.push(harness.start_relayer(&settings).await);
    }
    harness.enqueue("once", 3).await;
    harness.wait_until_drained().await;
    let cost = transactions_per_second(&harness, &running).await;
    for relayer in running {
        relayer.stop().await;
    }
    cost
}

#[tokio::test]
async fn an_idle_relayer_costs_the_database_next_to_nothing() {
    let (one, two) = tokio::join!(cost(1), cost(2));
    println!("{one:.1} transactions a second of one, {two:.1} of two");
    assert!(one < MAX_TRANSACTIONS_PER_SECOND, "{one} transactions a second");
    assert!(two < 2.0 * MAX_TRANSACTIONS_PER_SECOND, "{two} transactions a second of two");
}
