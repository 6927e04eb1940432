//! The SQL that docs/lanes/ tells a worker to run while it waits for work, run as it is written.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use std::{fs, path::Path};

use symphony_db::connect::Target;
use symphony_testkit::test_database::Server;
use tokio::sync::mpsc;
use tokio_postgres::AsyncMessage;

/// The statements of the example about `acquire_wakeup_lock`, without comments.
fn statements(page: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lanes").join(page);
    let text = fs::read_to_string(path).unwrap();
    let example = text.split("```sql\n").skip(1).map(|block| block.split("```").next().unwrap());
    let example = example.filter(|block| block.contains("acquire_wakeup_lock")).collect::<Vec<_>>();
    assert_eq!(example.len(), 1, "{page} has one example of waiting for work");
    let code: String =
        example[0].lines().map(|line| line.split("--").next().unwrap()).collect::<Vec<_>>().join("\n");
    code.split(';').map(str::trim).filter(|statement| !statement.is_empty()).map(str::to_owned).collect()
}

/// Commits one unit of work after each number of statements, and requires that the worker claims it or is notified of it.
async fn misses_nothing(page: &str, enqueue: &str) {
    let statements = statements(page);
    let claim = statements.iter().position(|sql| sql.contains(".claim_")).unwrap();
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let producer = database.connect().await.unwrap();
    producer
        .batch_execute("select symphony.register_payment_rail('sepa', '{}', 'test', 'lane pages')")
        .await
        .unwrap();
    let executor = Target::parse(&database.url_as_login(&["symphony_executor"]).await.unwrap()).unwrap();

    for committed_after in 0..statements.len() {
        let (says, mut received) = mpsc::unbounded_channel();
        let hear = move |message| {
            if let AsyncMessage::Notification(output) = message {
                let _ = says.send(output.channel().to_owned());
            }
        };
        let worker = executor.connect_with_messages(hear).await.unwrap();
        worker.batch_execute("listen marker").await.unwrap();
        let enqueue = enqueue.replace("UNIT", &format!("unit-{committed_after}"));
        let mut claimed = 0;
        // The last statement is for a worker that has woken up: what is committed after it is found by its next claim.
        for (ran, statement) in statements.iter().take(statements.len() - 1).enumerate() {
            if ran == committed_after {
                producer.batch_execute(&enqueue).await.unwrap();
            }
            let rows = worker.query(statement.as_str(), &[]).await.unwrap();
            if ran == claim {
                claimed = rows.len();
            }
        }
        if committed_after == statements.len() - 1 {
            producer.batch_execute(&enqueue).await.unwrap();
        }
        // Arrives after all that was committed before it.
        producer.batch_execute("notify marker").await.unwrap();
        let mut notified = 0;
        while received.recv().await.unwrap() != "marker" {
            notified += 1;
        }
        assert!(
            claimed + notified > 0,
            "{page}: what was committed after {committed_after} statements was missed"
        );

        let unlocked: bool = worker.query_one(statements.last().unwrap().as_str(), &[]).await.unwrap().get(0);
        assert!(unlocked, "{page}: the last statement gives back what acquire_wakeup_lock took");
        // The next round begins with nothing to claim.
        worker.query(statements[claim].as_str(), &[]).await.unwrap();
    }
}

#[tokio::test]
async fn a_worker_that_follows_the_page_of_payments_misses_no_commit() {
    misses_nothing(
        "payment.md",
        "select symphony.enqueue_payment_outbox('UNIT', 'merchant', 'key', 'sepa', '{\"amount\": \"1.00\", \"currency\": \"EUR\"}')",
    )
    .await;
}

#[tokio::test]
async fn a_worker_that_follows_the_page_of_events_misses_no_commit() {
    misses_nothing("event.md", "select m10_recovery.publish_outbox('order', 'UNIT', 'OrderPlaced', '{}')").await;
}

#[tokio::test]
async fn a_worker_that_follows_the_page_of_metadata_misses_no_commit() {
    misses_nothing("metadata.md", "select symphony.create_metadata_entry('document', 'UNIT', '{}')").await;
}

#[tokio::test]
async fn listen_without_the_wakeup_lock_receives_no_notification() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let producer = database.connect().await.unwrap();
    let (says, mut received) = mpsc::unbounded_channel();
    let hear = move |message| {
        if let AsyncMessage::Notification(output) = message {
            let _ = says.send(output.channel().to_owned());
        }
    };
    let worker = database.target().connect_with_messages(hear).await.unwrap();
    worker.batch_execute("listen m10_outbox; listen marker").await.unwrap();
    producer
        .batch_execute("select m10_recovery.publish_outbox('order', '1', 'OrderPlaced', '{}'); notify marker")
        .await
        .unwrap();
    assert_eq!(received.recv().await.unwrap(), "marker");
}
