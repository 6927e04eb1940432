//! Proof 28: the database crashes, restarts, ends sessions, fails over or stops answering.

use std::sync::OnceLock;

use serde_json::json;
use symphony_db::connect::Target;
use symphony_testkit::postgres::{Binaries, Cluster, Options, Replication, Standby};
use symphony_testkit::proxy::{Direction, NewConnections, Proxy};
use symphony_testkit::test_database::Server;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::{Harness, ORDERED, RAIL};
use crate::relayer::Relayer;

/// Payments that are enqueued between two faults.
const BETWEEN_FAULTS: usize = 30;
/// Dispatches in flight when the database stops answering.
const IN_FLIGHT: usize = 10;

/// A private server on which commits survive a crash.
async fn durable_server() -> Cluster {
    static BINARIES: OnceLock<Binaries> = OnceLock::new();
    let binaries = BINARIES.get_or_init(|| Binaries::find().unwrap());
    Cluster::start(binaries, Options { durable: true, ..Options::default() }).await.unwrap()
}

async fn harness_on(cluster: &Cluster) -> Harness {
    let harness =
        Harness::on_database(Server::at(&cluster.url("postgres")).unwrap().database().await.unwrap()).await;
    harness.set_rail(ORDERED, &json!({"ordered": true})).await;
    harness.bank.set_faults(&json!({"latency": "20ms", "jitter": "60ms"})).await;
    harness
}

/// The newest epoch: it rises only with a promotion, or if a relayer missed a commit.
async fn epoch(harness: &Harness) -> i64 {
    harness.query_number("select max(counter) from symphony.epochs").await
}

/// Checks that they still run, and stops them.
async fn stop_all(relayers: [Relayer; 2]) {
    for relayer in relayers {
        assert!(relayer.program.is_running(), "{}", relayer.program.tail());
        relayer.stop().await;
    }
}

#[tokio::test]
async fn a_database_that_is_killed_and_comes_back_loses_nothing() {
    let mut cluster = durable_server().await;
    let harness = harness_on(&cluster).await;
    let settings = harness.settings_for(&[RAIL, ORDERED]);
    let relayers = [harness.start_relayer(&settings).await, harness.start_relayer(&settings).await];
    let producers = harness.start_producers(&[RAIL, ORDERED]);
    for _ in 0..2 {
        producers.wait_for_more(BETWEEN_FAULTS).await;
        cluster.kill9().await;
        cluster.restart().await.unwrap();
    }
    producers.wait_for_more(BETWEEN_FAULTS).await;
    producers.stop().await;
    harness.reconcile().await;
    assert_eq!(epoch(&harness).await, 1, "no acknowledged commit was missed");
    stop_all(relayers).await;
}

#[tokio::test]
async fn sessions_that_are_ended_under_load_lose_nothing() {
    let harness = Harness::start().await;
    harness.set_rail(ORDERED, &json!({"ordered": true})).await;
    harness.bank.set_faults(&json!({"latency": "20ms", "jitter": "60ms"})).await;
    let settings = harness.settings_for(&[RAIL, ORDERED]);
    let relayers = [harness.start_relayer(&settings).await, harness.start_relayer(&settings).await];
    let producers = harness.start_producers(&[RAIL, ORDERED]);
    for _ in 0..4 {
        producers.wait_for_more(BETWEEN_FAULTS).await;
        assert!(harness.database.terminate_sessions().await.unwrap() > 0);
    }
    producers.wait_for_more(BETWEEN_FAULTS).await;
    producers.stop().await;
    harness.reconcile().await;
    assert_eq!(epoch(&harness).await, 1, "no acknowledged commit was missed");
    stop_all(relayers).await;
}

#[tokio::test]
async fn a_failover_to_a_synchronous_standby_loses_nothing() {
    let mut primary = durable_server().await;
    let mut harness = harness_on(&primary).await;
    let options = Options { durable: true, ..Options::default() };
    let standby = Standby { replication: Replication::Synchronous, options, ..Standby::default() };
    let standby = primary.standby(standby).await.unwrap();
    let both = |url: &str| {
        let (one, two) = (format!(":{}/", primary.port()), format!(":{}/", standby.port()));
        let hosts = url.replace(&one, &format!(":{},127.0.0.1{two}", primary.port()));
        assert_ne!(hosts, url);
        format!("{hosts}?target_session_attrs=read-write")
    };
    (harness.url, harness.producer_url) = (both(&harness.url), both(&harness.producer_url));
    let settings = harness.settings_for(&[RAIL, ORDERED]);
    let relayers = [harness.start_relayer(&settings).await, harness.start_relayer(&settings).await];
    let producers = harness.start_producers(&[RAIL, ORDERED]);
    producers.wait_for_more(2 * BETWEEN_FAULTS).await;

    primary.kill9().await;
    standby.promote().await.unwrap();
    harness.target = Target::parse(&standby.url(harness.database.name())).unwrap();
    producers.wait_for_more(2 * BETWEEN_FAULTS).await;
    producers.stop().await;
    harness.reconcile().await;
    for relayer in &relayers {
        let condition = async || relayer.metric_sum("symphony_listener_connected").await == 1;
        until("it listens to the new primary", DEFAULT_TIMEOUT, condition).await.unwrap();
    }
    assert_eq!(epoch(&harness).await, 2, "one for the promotion, for both relayers together");
    stop_all(relayers).await;
}

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_ends_its_dispatch_and_the_bank_is_asked_afterwards() {
    let harness = Harness::start().await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    let mut settings = harness.settings();
    settings.url = network.url().to_owned();
    let relayer = harness.start_relayer(&settings).await;
    // The bank has received every payment, and takes longer than a lease to answer.
    harness.bank.set_faults(&json!({"latency": "8s"})).await;
    harness.enqueue("silent", IN_FLIGHT).await;
    harness.bank.wait_for_received(IN_FLIGHT).await;
    network.stall(Direction::Both);
    relayer.wait_for_log("its dispatch is cancelled").await;
    network.release();
    harness.bank.set_faults(&json!({"latency": "0ms"})).await;

    let report = harness.reconcile().await;
    assert_eq!(report.counts.dispatched, IN_FLIGHT);
    assert!(report.counts.unknown_outcomes >= IN_FLIGHT, "each dispatch was cancelled: {report}");
    let payments = harness.bank.payments().await;
    let inquiries = harness.bank.requests().await.len() - payments;
    assert!(inquiries >= IN_FLIGHT, "{inquiries} inquiries");
    relayer.stop().await;
}

#[tokio::test]
async fn a_relayer_that_is_told_to_stop_while_the_database_is_down_exits_all_the_same() {
    let harness = Harness::start().await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    // A long grace must not delay the exit: there is nothing to wait for once the leases have expired.
    let mut settings = harness.settings().payment("grace", "'10m'");
    settings.url = network.url().to_owned();
    let first = harness.start_relayer(&settings).await;
    harness.bank.set_faults(&json!({"latency": "1s"})).await;
    harness.enqueue("unrecorded", IN_FLIGHT).await;
    harness.bank.wait_for_received(IN_FLIGHT).await;
    network.cut(NewConnections::Refuse).await;
    first.stop().await;

    // The next relayer asks the bank for the results that the first could not record.
    harness.bank.set_faults(&json!({"latency": "0ms"})).await;
    let second = harness.start_relayer(&harness.settings()).await;
    assert_eq!(harness.reconcile().await.counts.dispatched, IN_FLIGHT);
    second.stop().await;
}
