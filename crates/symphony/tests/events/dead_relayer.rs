//! A relayer that dies with claimed events: another relayer publishes them in seconds, not after the contract's 5 minutes.

use symphony_testkit::brokers::Kind;
use symphony_testkit::test_database::Server;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio::net::TcpListener;

use crate::broker::TestBroker;
use crate::harness::settings;
use crate::relayer::Relayer;

#[tokio::test]
async fn events_of_a_killed_relayer_are_published_in_seconds_and_those_of_a_frozen_one_are_left_to_it() {
    const HELD: i64 = 30;
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let superuser = database.connect().await.unwrap();
    let number = async |query: &str| -> i64 { superuser.query_one(query, &[]).await.unwrap().get(0) };
    let publish = async |from: i64, to: i64| {
        let publish = "select m10_recovery.publish_outbox('order', n::text, 'Placed', '{}') from generate_series($1::bigint, $2) n";
        superuser.execute(publish, &[&from, &to]).await.unwrap();
    };
    let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    // It accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!(
        "kind = 'http'\nurl = 'http://{}/'\nallow_plain = true\nallow_private = ['127.0.0.1']\ntimeout = '60s'\n",
        silent.local_addr().unwrap()
    );
    let dying = Relayer::start(&settings(&url, &silent), folder.path()).await;
    publish(1, HELD).await;
    let claimed = "select count(*) from m10_recovery.outbox where processed_at is null and claimed_at is not null";
    until("all are claimed", DEFAULT_TIMEOUT, async || number(claimed).await == HELD).await.unwrap();

    dying.program.suspend();
    // Older than what a release leaves to the next.
    superuser
        .batch_execute("update m10_recovery.outbox set claimed_at = claimed_at - interval '1 minute'")
        .await
        .unwrap();
    let broker = TestBroker::start(Kind::Redis).await;
    let peer = Relayer::start(&settings(&url, &broker.section(folder.path())), folder.path()).await;
    publish(HELD + 1, HELD + 1).await;
    let processed = "select count(*) from m10_recovery.outbox where processed_at is not null";
    until("the peer works", DEFAULT_TIMEOUT, async || number(processed).await == 1).await.unwrap();
    assert_eq!(
        number("select symphony.release_abandoned_events()::bigint").await,
        0,
        "a frozen relayer is not gone"
    );
    assert_eq!(number(claimed).await, HELD);

    dying.program.kill9().await.unwrap();
    until("the peer publishes them", DEFAULT_TIMEOUT, async || number(processed).await == HELD + 1).await.unwrap();
    let released = "select count(*) from m10_recovery.outbox_errors
                    where error = 'released: the session of the relayer that claimed it has ended'";
    assert_eq!(number(released).await, HELD, "each was released once, as a failure");
    assert_eq!(broker.read().await.len(), usize::try_from(HELD).unwrap() + 1);
    peer.stop().await;
}
