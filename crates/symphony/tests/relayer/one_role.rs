//! A relayer needs only the role `symphony_executor`: beside its claims it reads totals and policies.

use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::Harness;
use crate::recording_server::RecordingServer;

/// Reads that would let a relayer forge completions of other workers, or see their payments.
const FORBIDDEN: [&str; 6] = [
    "select lease_token from symphony.payment_outbox_pending",
    "select payload from symphony.payment_outbox_pending",
    "select payload from symphony.payment_outbox_attempts",
    "select claimed_by from m10_recovery.outbox",
    "select payload from m10_recovery.outbox",
    "select claim_token from symphony.metadata_outbox",
];

#[tokio::test]
async fn a_login_with_symphony_executor_alone_runs_all_three_lanes_with_their_gauges() {
    let harness = Harness::start().await;
    let broker = RecordingServer::start().await;
    let store = harness.database.url();
    let superuser = harness.superuser().await;
    superuser
        .batch_execute(
            "create table symphony_metadata (
               entity_type text, entity_id text, metadata jsonb, version bigint, entry_id uuid, updated_at timestamptz,
               primary key (entity_type, entity_id));
             select m10_recovery.publish_outbox('order', 'o-' || n, 'placed', '{}') from generate_series(1, 3) n;
             select symphony.create_metadata_entry('document', 'd-' || n, '{}') from generate_series(1, 2) n",
        )
        .await
        .unwrap();
    let mut settings = harness.settings();
    settings.extra = format!(
        "[event]\nsource = '//orders.example'\norder = 'aggregate'\npoll_interval = '250ms'\n[[event.routes]]\naggregate_type = '*'\nevent_type = '*'\nsink = 'hook'\ndestination = 'orders'\n\
         [sinks.hook]\nkind = 'http'\nurl = 'http://{}/events'\nallow_plain = true\nallow_private = ['127.0.0.1']\n\
         [metadata]\npoll_interval = '250ms'\n[[metadata.routes]]\nentity_type = '*'\nstore = 'second'\n\
         [stores.second]\nkind = 'postgres'\nallow_plain = true\nurl = '{store}'\n",
        broker.address(),
    );
    let relayer = harness.start_relayer(&settings).await;
    harness.enqueue("alone", 4).await;
    let done = "select (select count(*) from symphony.payment_outbox_attempts where state = 'DISPATCHED')
                     + (select count(*) from m10_recovery.outbox where processed_at is not null)
                     + (select count(*) from symphony.metadata_outbox where status = 'PUBLISHED')";
    until("all three lanes are empty", DEFAULT_TIMEOUT, async || {
        superuser.query_one(done, &[]).await.unwrap().get::<_, i64>(0) == 9
    })
    .await
    .unwrap();
    let text = relayer.metrics().await;
    for name in [
        "outbox_pending_depth",
        "outbox_due",
        "oldest_pending_age_seconds",
        "oldest_due_age_seconds",
        "stuck_dispatching_count",
    ] {
        for lane in ["payment", "event", "metadata"] {
            let there = text.lines().any(|line| line.starts_with(&format!("symphony_{name}{{lane=\"{lane}\"")));
            assert!(there, "{name} of {lane} is not in:\n{text}");
        }
    }
    assert_eq!(relayer.log_count("missing").await, 0, "no gauge and no right is missing");
    relayer.stop().await;

    let login = symphony_db::connect::Target::parse(&harness.url).unwrap().connect().await.unwrap();
    for statement in FORBIDDEN {
        let refusal = login.batch_execute(statement).await.unwrap_err();
        assert_eq!(refusal.code().map(tokio_postgres::error::SqlState::code), Some("42501"), "{statement}");
    }
}
