//! A standby that is promoted after it missed the last commits of its primary: the new epoch, against a real timeline.
#![expect(clippy::unwrap_used, reason = "a test that cannot ask the database has failed")]

use symphony_db::connect::Target;
use symphony_testkit::postgres::{Binaries, Cluster, Options, Standby};
use symphony_testkit::test_database::Server;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio_postgres::Client;

const CLAIM: &str =
    "select idempotency_key, outcome_unknown from symphony.claim_outbox_batch(10, 'worker', 60) order by 1";

/// What the producers of one moment were given: a sequence number, an event id, and the version of an entry.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Given {
    sequence_id: i64,
    event_id: i64,
    version: i64,
}

async fn produce(client: &Client, name: &str) -> Given {
    let enqueue = "select sequence_id from symphony.enqueue_payment_outbox($1, 'alice', $1, 'bank', '{}')";
    let publish = "select m10_recovery.publish_outbox('order', $1, 'Placed', '{}')";
    let create = "select symphony.create_metadata_entry('customer', 'alice', '{}')::text, $1::text";
    let version = "select max(version) from symphony.find_metadata_by_entity('alice', 'customer')";
    let sequence_id = client.query_one(enqueue, &[&name]).await.unwrap().get(0);
    let event_id = client.query_one(publish, &[&name]).await.unwrap().get(0);
    client.query_one(create, &[&name]).await.unwrap();
    Given { sequence_id, event_id, version: client.query_one(version, &[]).await.unwrap().get(0) }
}

/// The keys that a claim returns, and whether their outcome is unknown.
async fn claim(client: &Client) -> Vec<(String, bool)> {
    client.query(CLAIM, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn a_promoted_standby_that_lost_commits_opens_an_epoch_and_sends_nothing_unasked() {
    let mut primary = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
    let database = Server::at(&primary.url("postgres")).unwrap().database().await.unwrap();
    let old = database.connect().await.unwrap();
    old.batch_execute("select symphony.register_payment_rail('bank', '{}', 'ana', 'a test')").await.unwrap();
    produce(&old, "kept-1").await;
    produce(&old, "kept-2").await;
    let standby = primary.standby(Standby::default()).await.unwrap();
    standby.catch_up_with(&primary).await.unwrap();

    // The standby receives nothing more: what follows is lost.
    let new = Target::parse(&standby.url(database.name())).unwrap();
    let session = new.connect().await.unwrap();
    let disconnect = ["alter system set primary_conninfo = ''", "select pg_reload_conf()"];
    for statement in disconnect {
        session.batch_execute(statement).await.unwrap();
    }
    until("the standby is disconnected", DEFAULT_TIMEOUT, async || {
        let receivers = session.query_one("select count(*) from pg_stat_wal_receiver", &[]).await.unwrap();
        receivers.get::<_, i64>(0) == 0
    })
    .await
    .unwrap();
    let lost = produce(&old, "lost").await;
    let sent = claim(&old).await;
    assert_eq!(sent.len(), 3, "the old primary has granted all of them, and a worker has sent them");
    assert!(sent.iter().all(|(_, is_unknown)| !is_unknown));
    primary.kill9().await;
    standby.promote().await.unwrap();

    let session = new.connect().await.unwrap();
    let before_claim = produce(&session, "early").await;
    let claimed = claim(&session).await;
    let expected = [("early", true), ("kept-1", true), ("kept-2", true)];
    assert_eq!(claimed, expected.map(|(key, is_unknown)| (key.to_owned(), is_unknown)));
    let after_claim = produce(&session, "late").await;
    assert_eq!(claim(&session).await, [("late".to_owned(), false)]);
    for given in [&before_claim, &after_claim] {
        let is_above =
            given.sequence_id > lost.sequence_id && given.event_id > lost.event_id && given.version > lost.version;
        assert!(is_above, "{given:?} after {lost:?} was lost");
    }
    assert!(after_claim > before_claim, "{after_claim:?} after {before_claim:?}");
    let epochs = "select string_agg(format('%s on timeline %s', counter, timeline), ', ' order by counter) from symphony.epochs";
    let epochs: String = session.query_one(epochs, &[]).await.unwrap().get(0);
    assert_eq!(epochs, "1 on timeline 1, 2 on timeline 2");
}
