//! What a relayer costs the database while there is nothing to do.

use std::time::Duration;

use symphony_proof::kit::wait::{BOUND, until};

use crate::relayer::Relayer;
use crate::yard::Yard;

/// How long is looked.
const WHILE: Duration = Duration::from_secs(10);
/// How late PostgreSQL counts the transactions of a session that has nothing more to do: those of the start and of the work before
/// must not fall into the time that is looked at.
const COUNTED_AFTER: Duration = Duration::from_secs(11);
/// The most transactions a second that a relayer may cost, all its sessions together.
const MOST: f64 = 5.0;

/// Transactions in this database, without those of the session that asks.
async fn transactions(yard: &Yard) -> i64 {
    // From another database, so that the question itself does not count.
    let elsewhere = yard.database.target().database("postgres").connect().await.unwrap();
    let asked = "select xact_commit + xact_rollback from pg_stat_database where datname = $1";
    elsewhere.query_one(asked, &[&yard.database.name()]).await.unwrap().get(0)
}

async fn cost_of(yard: &Yard, relayers: &[Relayer]) -> f64 {
    for relayer in relayers {
        let so = async || relayer.count("symphony_listener_connected").await == 1;
        until("it listens", BOUND, so).await.unwrap();
    }
    tokio::time::sleep(COUNTED_AFTER).await;
    let before = transactions(yard).await;
    let began = tokio::time::Instant::now();
    // The time over which the cost is measured.
    tokio::time::sleep(WHILE).await;
    let cost = transactions(yard).await - before;
    f64::from(i32::try_from(cost).unwrap()) / began.elapsed().as_secs_f64()
}

/// The same after some work, with so many relayers.
async fn cost(relayers: usize) -> f64 {
    let yard = Yard::open().await;
    let orders = yard.orders().defaults();
    let mut running = Vec::new();
    for _ in 0..relayers {
        running.push(yard.relayer(&orders).await);
    }
    yard.enqueue("once", 3).await;
    yard.is_done().await;
    let cost = cost_of(&yard, &running).await;
    for relayer in running {
        relayer.stop().await;
    }
    cost
}

#[tokio::test]
async fn an_idle_relayer_costs_the_database_next_to_nothing() {
    let (one, two) = tokio::join!(cost(1), cost(2));
    println!("{one:.1} transactions a second of one, {two:.1} of two");
    assert!(one < MOST, "{one} transactions a second");
    assert!(two < 2.0 * MOST, "{two} transactions a second of two");
}
