//! Invalid calls: the SQLSTATE of each refusal, and that it changes no row.

use tokio_postgres::Client;

use super::super::evidence::{Failure, Recorder, require, sqlstate};
use super::super::sessions::Sessions;
use super::calls::{all_rows, claim, complete, publish};
use symphony_testkit::test_database::Database;

/// Null, blank or out of range. $ID stands for an event that A has claimed.
const INVALID: [&str; 21] = [
    "m10_recovery.publish_outbox(null, 'b', 'c', '{}')",
    "m10_recovery.publish_outbox('a', null, 'c', '{}')",
    "m10_recovery.publish_outbox('a', 'b', null, '{}')",
    "m10_recovery.publish_outbox('a', 'b', 'c', null)",
    "m10_recovery.publish_outbox('', 'b', 'c', '{}')",
    "m10_recovery.publish_outbox('a', '  ', 'c', '{}')",
    "m10_recovery.publish_outbox('a', 'b', E'\\t\\n', '{}')",
    "m10_recovery.publish_outbox(repeat('a', 201), 'b', 'c', '{}')",
    "m10_recovery.publish_outbox('a', 'b', 'c', to_jsonb(repeat('x', 1048577)))",
    "m10_recovery.claim_outbox_events(null, 10)",
    "m10_recovery.claim_outbox_events(' ', 10)",
    "m10_recovery.claim_outbox_events(repeat('p', 201), 10)",
    "m10_recovery.claim_outbox_events('B', null)",
    "m10_recovery.claim_outbox_events('B', 0)",
    "m10_recovery.claim_outbox_events('B', -1)",
    "m10_recovery.claim_outbox_events('B', 1001)",
    "m10_recovery.complete_outbox_event(null, 'A', true)",
    "m10_recovery.complete_outbox_event($ID, null, true)",
    "m10_recovery.complete_outbox_event($ID, '', true)",
    "m10_recovery.complete_outbox_event($ID, E' \\n', false, 'error')",
    "m10_recovery.complete_outbox_event($ID, 'A', null)",
];

pub(super) async fn change_nothing(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    let claimed = publish(&sessions.ingest, "order", "claimed").await?;
    claim(&sessions.executor, "A", 1).await?;
    let unclaimed = publish(&sessions.ingest, "order", "unclaimed").await?;
    let before = all_rows(&sessions.owner).await?;

    for call in INVALID {
        let call = format!("select {}", call.replace("$ID", &claimed.to_string()));
        let by = if call.contains("publish") { &sessions.ingest } else { &sessions.executor };
        let result = by.query(&call, &[]).await;
        let happened = result.as_ref().err().map_or("allowed", |error| sqlstate(error));
        require(|| call.clone(), "P7005", happened)?;
    }
    let same = all_rows(&sessions.owner).await? == before;
    recorder.check(
        format!("{} calls with an argument that is null, blank, too long or out of range", INVALID.len()),
        "each refused with P7005, nothing changed",
        format!("each refused with P7005, changed: {}", !same),
        same,
    )?;

    for (tried, event, processor) in [
        ("completing an event that another processor has claimed", claimed, "B"),
        ("completing with the processor id in another case", claimed, "a"),
        ("completing with a trailing blank in the processor id", claimed, "A "),
        ("completing an unclaimed event", unclaimed, "A"),
        ("completing an event that does not exist", 4_711_000_000, "A"),
        ("completing a negative id", -1, "A"),
    ] {
        refused(&sessions.executor, &sessions.owner, recorder, tried, event, processor).await?;
    }
    complete(&sessions.executor, claimed, "A", true, None).await?;
    refused(
        &sessions.executor,
        &sessions.owner,
        recorder,
        "completing a processed event again, as the same processor",
        claimed,
        "A",
    )
    .await?;
    claim(&sessions.executor, "C", 1).await?;
    complete(&sessions.executor, unclaimed, "C", false, None).await?;
    refused(
        &sessions.executor,
        &sessions.owner,
        recorder,
        "completing an event again after its failure was recorded",
        unclaimed,
        "C",
    )
    .await?;
    sessions
        .owner
        .execute("update m10_recovery.outbox set processed_at = now() where processed_at is null", &[])
        .await?;
    Ok(())
}

/// Completes with success and failure, with an error and without: P7002, and no row changes.
pub(super) async fn refused(
    executor: &Client,
    owner: &Client,
    recorder: &mut Recorder,
    tried: &str,
    event: i64,
    processor: &str,
) -> Result<(), Failure> {
    let before = all_rows(owner).await?;
    let mut refusals = 0;
    for (success, error) in [(true, None), (true, Some("late")), (false, None), (false, Some("late"))] {
        let result = complete(executor, event, processor, success, error).await;
        let happened = result.as_ref().err().map_or("allowed", |error| sqlstate(error));
        require(|| format!("{tried}, success: {success}"), "P7002", happened)?;
        refusals += 1;
    }
    let same = all_rows(owner).await? == before;
    recorder.check(
        format!("{tried}: success and failure, with an error and without"),
        "4 refused with P7002, nothing changed",
        format!("{refusals} refused with P7002, changed: {}", !same),
        same,
    )
}
