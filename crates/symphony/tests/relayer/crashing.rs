//! Proof 28: the database is killed, restarted, cut off and failed over under load.

use std::sync::OnceLock;

use serde_json::json;
use symphony_outbox::connect::Target;
use symphony_proof::kit::postgres::{Binaries, Cluster, Options, Replication, Standby};
use symphony_proof::kit::scratch::Server;
use symphony_proof::kit::wait::BOUND;

use crate::relayer::Relayer;
use crate::yard::{ORDERED, RAIL, Yard};

/// How much is enqueued between two blows.
const BETWEEN: usize = 30;

/// A server of this test alone, on which commits survive.
async fn server() -> Cluster {
    static BINARIES: OnceLock<Binaries> = OnceLock::new();
    let binaries = BINARIES.get_or_init(|| Binaries::find().unwrap());
    Cluster::start(binaries, Options { durable: true, ..Options::default() }).await.unwrap()
}

async fn yard_on(cluster: &Cluster) -> Yard {
    let yard = Yard::on(Server::at(&cluster.url("postgres")).unwrap().database().await.unwrap()).await;
    yard.rail(ORDERED, &json!({"ordered": true})).await;
    yard.bank.order(&json!({"latency": "20ms", "jitter": "60ms"})).await;
    yard
}

/// They have lived through it, and end in good order.
async fn stop_all(relayers: [Relayer; 2]) {
    for relayer in relayers {
        assert!(relayer.program.is_running(), "{}", relayer.program.tail());
        relayer.stop().await;
    }
}

#[tokio::test]
async fn a_database_that_is_killed_and_comes_back_loses_nothing() {
    let mut cluster = server().await;
    let yard = yard_on(&cluster).await;
    let orders = yard.orders_for(&[RAIL, ORDERED]);
    let relayers = [yard.relayer(&orders).await, yard.relayer(&orders).await];
    let load = yard.load(&[RAIL, ORDERED]);
    for _ in 0..2 {
        load.goes_on(BETWEEN).await;
        cluster.kill9().await;
        cluster.restart().await.unwrap();
    }
    load.goes_on(BETWEEN).await;
    load.end().await;
    yard.audit().await;
    stop_all(relayers).await;
}

#[tokio::test]
async fn sessions_that_are_ended_under_load_lose_nothing() {
    let yard = Yard::open().await;
    yard.rail(ORDERED, &json!({"ordered": true})).await;
    yard.bank.order(&json!({"latency": "20ms", "jitter": "60ms"})).await;
    let orders = yard.orders_for(&[RAIL, ORDERED]);
    let relayers = [yard.relayer(&orders).await, yard.relayer(&orders).await];
    let load = yard.load(&[RAIL, ORDERED]);
    for _ in 0..4 {
        load.goes_on(BETWEEN).await;
        assert!(yard.database.terminate_sessions().await.unwrap() > 0);
    }
    load.goes_on(BETWEEN).await;
    load.end().await;
    yard.audit().await;
    stop_all(relayers).await;
}

#[tokio::test]
async fn a_failover_to_a_synchronous_standby_loses_nothing() {
    let mut primary = server().await;
    let mut yard = yard_on(&primary).await;
    let options = Options { durable: true, ..Options::default() };
    let standby = Standby { replication: Replication::Synchronous, options, ..Standby::default() };
    let standby = primary.standby(standby).await.unwrap();
    let both = |url: &str| {
        let (one, two) = (format!(":{}/", primary.port()), format!(":{}/", standby.port()));
        let hosts = url.replace(&one, &format!(":{},127.0.0.1{two}", primary.port()));
        assert_ne!(hosts, url);
        format!("{hosts}?target_session_attrs=read-write")
    };
    (yard.url, yard.till_url) = (both(&yard.url), both(&yard.till_url));
    let orders = yard.orders_for(&[RAIL, ORDERED]);
    let relayers = [yard.relayer(&orders).await, yard.relayer(&orders).await];
    let load = yard.load(&[RAIL, ORDERED]);
    load.goes_on(2 * BETWEEN).await;

    primary.kill9().await;
    standby.promote().await.unwrap();
    yard.place = Target::parse(&standby.url(yard.database.name())).unwrap();
    load.goes_on(2 * BETWEEN).await;
    load.end().await;
    yard.audit().await;
    for relayer in &relayers {
        // The listener has moved as well.
        let so = async || relayer.count("symphony_listener_connected").await == 1;
        symphony_proof::kit::wait::until("it listens to the new primary", BOUND, so).await.unwrap();
    }
    stop_all(relayers).await;
}
