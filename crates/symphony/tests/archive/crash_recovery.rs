//! The process dies between two steps: the next run continues, and each row is in the ledger or in one archive.

use std::process::Stdio;

use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::fixture::{Fixture, ROWS_PER_WEEK};
use crate::program::symphony;

async fn all_is_archived_once(fixture: &Fixture, rows: i64) {
    fixture.archive(&[]).exits(0);
    assert_eq!(fixture.ledger_rows().await, rows - i64::from(2 * ROWS_PER_WEEK));
    let recorded = "select count(*) || ' ' || count(distinct partition_oid) || ' ' || sum(row_count) from symphony.payment_ledger_archives";
    assert_eq!(fixture.text(recorded).await, format!("2 2 {}", 2 * ROWS_PER_WEEK));
    let drops = "select count(*) from symphony.payment_outbox_operations where operation = 'DROP_PARTITION'";
    assert_eq!(fixture.number(drops).await, 2);
    assert_eq!(fixture.archives().len(), 2);
    fixture.starts_at_the_lowest_id().await;
    symphony(&fixture.owner_url, &["verify"]).exits(0);
}

#[tokio::test]
async fn a_run_that_dies_between_two_steps_is_continued() {
    for step in ["archive_exported", "archive_recorded", "archive_detached", "archive_dropped"] {
        let fixture = Fixture::new(4).await;
        let rows = fixture.ledger_rows().await;
        assert_eq!(fixture.archive_until(step).code, -1, "{step}: killed by its own signal");
        all_is_archived_once(&fixture, rows).await;
    }
}

#[tokio::test]
async fn a_run_that_dies_in_each_step_of_the_second_partition_is_continued() {
    for step in ["archive_detached", "archive_dropped"] {
        let fixture = Fixture::new(4).await;
        let rows = fixture.ledger_rows().await;
        let oldest = fixture
            .text("select (min(ends_at) + interval '1 day')::text from symphony.list_partitions_to_archive()")
            .await;
        let before = oldest.replace(' ', "T");
        fixture.archive(&["--before", &format!("{before}:00")]).exits(0);
        assert_eq!(fixture.archive_until(step).code, -1, "{step}");
        all_is_archived_once(&fixture, rows).await;
    }
}

#[tokio::test]
async fn a_run_that_is_killed_while_it_waits_to_detach_is_continued() {
    let fixture = Fixture::new(4).await;
    let rows = fixture.ledger_rows().await;
    let reader = fixture.database.connect().await.unwrap();
    reader.batch_execute("begin; select count(*) from symphony.payment_outbox_attempts").await.unwrap();
    let mut run = fixture.command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let detaching = "select count(*) from symphony.payment_ledger_partitions() where is_detaching";
    until("the partition is being detached", DEFAULT_TIMEOUT, async || fixture.number(detaching).await == 1)
        .await
        .unwrap();
    run.kill().unwrap();
    run.wait().unwrap();
    let detach = "from pg_stat_activity where datname = current_database()
                    and query like 'alter table symphony.payment_outbox_attempts detach%' and state = 'active'";
    fixture.execute(&format!("select pg_terminate_backend(pid) {detach}")).await;
    let sessions = format!("select count(*) {detach}");
    until("its session has ended", DEFAULT_TIMEOUT, async || fixture.number(&sessions).await == 0).await.unwrap();
    assert_eq!(fixture.number(detaching).await, 1, "it stays in between");
    reader.batch_execute("commit").await.unwrap();
    all_is_archived_once(&fixture, rows).await;
}
