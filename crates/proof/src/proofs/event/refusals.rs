//! What is refused, by its SQLSTATE, and that nothing is changed by it.

use tokio_postgres::Client;

use super::super::crew::Crew;
use super::super::evidence::{Failure, Trial, code, require};
use super::crew::{claim, complete, everything, publish};
use crate::kit::scratch::Database;

/// Blank or null, or outside of what is bounded. $ID stands for an event that A holds.
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

pub(super) async fn change_nothing(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    let held = publish(&crew.ingest, "order", "held").await?;
    claim(&crew.executor, "A", 1).await?;
    let free = publish(&crew.ingest, "order", "free").await?;
    let before = everything(&crew.owner).await?;

    for call in INVALID {
        let call = format!("select {}", call.replace("$ID", &held.to_string()));
        let by = if call.contains("publish") { &crew.ingest } else { &crew.executor };
        let result = by.query(&call, &[]).await;
        let happened = result.as_ref().err().map_or("allowed", |error| code(error));
        require(|| call.clone(), "P7005", happened)?;
    }
    let same = everything(&crew.owner).await? == before;
    trial.holds(
        format!("{} calls with an argument that is null, blank, too long or out of range", INVALID.len()),
        "each refused with P7005, nothing changed",
        format!("each refused with P7005, changed: {}", !same),
        same,
    )?;

    for (tried, event, processor) in [
        ("completing what another holds", held, "B"),
        ("completing in other letters", held, "a"),
        ("completing with a blank more", held, "A "),
        ("completing what nobody holds", free, "A"),
        ("completing what never was", 4_711_000_000, "A"),
        ("completing a negative number", -1, "A"),
    ] {
        refused(&crew.executor, &crew.owner, trial, tried, event, processor).await?;
    }
    complete(&crew.executor, held, "A", true, None).await?;
    refused(&crew.executor, &crew.owner, trial, "completing what is processed already, as who did it", held, "A")
        .await?;
    claim(&crew.executor, "C", 1).await?;
    complete(&crew.executor, free, "C", false, None).await?;
    refused(&crew.executor, &crew.owner, trial, "completing what one has failed already", free, "C").await?;
    crew.owner
        .execute("update m10_recovery.outbox set processed_at = now() where processed_at is null", &[])
        .await?;
    Ok(())
}

/// Success and failure, with an error and without: P7002, and every row is as it was.
pub(super) async fn refused(
    executor: &Client,
    owner: &Client,
    trial: &mut Trial,
    tried: &str,
    event: i64,
    processor: &str,
) -> Result<(), Failure> {
    let before = everything(owner).await?;
    let mut refusals = 0;
    for (success, error) in [(true, None), (true, Some("late")), (false, None), (false, Some("late"))] {
        let result = complete(executor, event, processor, success, error).await;
        let happened = result.as_ref().err().map_or("allowed", |error| code(error));
        require(|| format!("{tried}, success: {success}"), "P7002", happened)?;
        refusals += 1;
    }
    let same = everything(owner).await? == before;
    trial.holds(
        format!("{tried}: success and failure, with an error and without"),
        "4 refused with P7002, nothing changed",
        format!("{refusals} refused with P7002, changed: {}", !same),
        same,
    )
}
