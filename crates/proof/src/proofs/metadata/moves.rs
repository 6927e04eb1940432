//! What each function takes, and from where: the same arrows, by the hands of the roles that may.

use std::collections::BTreeSet;

use symphony_outbox::metadata::Status;

use super::super::crew::{Crew, text};
use super::super::evidence::{Failure, Trial, code, require};
use super::crew::{
    age_claim, claim, claim_this, create, entry_in, everything, make_due, mark, repair, row, status,
};
use crate::kit::scratch::Database;

/// Leaves nothing that a claim would take.
async fn clear(crew: &Crew) -> Result<(), Failure> {
    make_due(&crew.owner).await?;
    for held in claim(&crew.executor, "end", 1000).await? {
        mark(&crew.executor, "published", &held.id, Some(&held.token)).await?;
    }
    Ok(())
}

/// Every function on an entry in every status: the moves that happen are the five arrows, and no other.
pub(super) async fn from_every_status(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    let nobodys = "00000000-0000-4000-8000-000000000000";
    let mut seen = BTreeSet::new();
    let mut refusals = 0;
    for from in Status::ALL {
        for move_by in ["claim", "published", "failed", "dlq", "dlq without a token", "repair"] {
            clear(&crew).await?;
            let (id, token) = entry_in(&crew, "moves", *from).await?;
            make_due(&crew.owner).await?;
            let before = row(&crew.owner, &id).await?;
            let held = token.as_deref().unwrap_or(nobodys);
            let done = match move_by {
                "claim" => claim(&crew.executor, "worker", 1000).await.map(drop),
                "repair" => repair(&crew.executor).await.map(drop),
                "dlq without a token" => mark(&crew.executor, "dlq", &id, None).await,
                outcome => mark(&crew.executor, outcome, &id, Some(held)).await,
            };
            let now = status(&crew.owner, &id).await?;
            let tried = || format!("{move_by} on an entry that is {from}");
            if let Err(error) = &done {
                let expected = match (from, move_by) {
                    (Status::Published | Status::Dlq, _) => "P7001",
                    (Status::Processing, "dlq without a token") => "P7002",
                    _ => "P7003",
                };
                require(tried, expected, code(error))?;
                require(tried, &before, &row(&crew.owner, &id).await?)?;
                refusals += 1;
            }
            if now != from.as_str() {
                seen.insert(format!("{from}→{now}"));
            }
        }
    }
    // A claim that is too old, and one that has no retries left, make the moves that are left.
    clear(&crew).await?;
    let (id, _) = entry_in(&crew, "moves", Status::Processing).await?;
    age_claim(&crew.owner, &id, "5 minutes 1 second").await?;
    require(
        || "repairing".into(),
        format!("{:?}", [(&id, "FAILED")]),
        format!("{:?}", repair(&crew.executor).await?),
    )?;
    let error =
        text(&crew.owner, "select last_error from symphony.metadata_outbox where id = $1::text::uuid", &[&id])
            .await?;
    trial.same("repairing a claim that is older than 5 minutes", "error", "LEASE_EXPIRED".to_owned(), error)?;
    let arrows: BTreeSet<_> =
        ["PENDING→PROCESSING", "PROCESSING→PUBLISHED", "PROCESSING→FAILED", "FAILED→PROCESSING", "FAILED→DLQ"]
            .map(str::to_owned)
            .into();
    trial.holds(
        format!("every function on entries in every status, {refusals} times refused"),
        "the five arrows and no other",
        seen.iter().cloned().collect::<Vec<_>>().join(", "),
        seen == arrows && refusals == 17,
    )
}

/// Where no retries are left: by the marks, by the batch and by repair.
pub(super) async fn to_the_last_retry(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    clear(&crew).await?;
    let delays = "select string_agg(extract(epoch from next_retry_at - updated_at)::numeric::int::text, ' ') from symphony.metadata_outbox where id = $1::text::uuid";

    let id = create(&crew.ingest, "last retry", 13).await?;
    let mut seconds = Vec::new();
    for failure in 1..=13 {
        let held = claim_this(&crew, &id).await?;
        if failure < 13 {
            trial_dlq_refused(&crew, &held.id, &held.token).await?;
        }
        mark(&crew.executor, "failed", &id, Some(&held.token)).await?;
        seconds.push(text(&crew.owner, delays, &[&id]).await?);
        make_due(&crew.owner).await?;
    }
    trial.same(
        "failing 13 times with 13 retries",
        "seconds until it is due again, and none at the end",
        "1 2 4 8 16 32 64 128 256 512 1024 1024 none".to_owned(),
        seconds.join(" "),
    )?;
    let found = claim(&crew.executor, "worker", 1000).await?.len();
    trial.same("claiming what FAILED and has no retries left", "entries", 0, found)?;
    let repaired = repair(&crew.executor).await?;
    trial.same(
        "repair of what was left FAILED without retries",
        "entries",
        format!("{:?}", [(&id, "DLQ")]),
        format!("{repaired:?}"),
    )?;

    let ends = "select concat_ws(' ', status, retry_count, last_error, next_retry_at is null, claim_token is null, processed_at is null)
                from symphony.metadata_outbox where id = $1::text::uuid";
    for (by, error) in [("dlq", "it is hopeless"), ("batch", "ann was away"), ("repair", "LEASE_EXPIRED")] {
        let id = create(&crew.ingest, "last retry", 1).await?;
        let held = claim_this(&crew, &id).await?;
        match by {
            "dlq" => mark(&crew.executor, "dlq", &id, Some(&held.token)).await?,
            "batch" => {
                let call = "select status::text from symphony.complete_metadata_batch(
                              array[$1::text::uuid], array[$2::text::uuid], array['FAILED'], array['ann was away'])";
                let answered = text(&crew.executor, call, &[&id, &held.token]).await?;
                require(|| "the answer of the batch".into(), "DLQ".to_owned(), answered)?;
            }
            _ => {
                age_claim(&crew.owner, &id, "5 minutes 1 second").await?;
                repair(&crew.executor).await?;
            }
        }
        trial.same(
            format!("the last retry ended by {by}"),
            "entry",
            format!("DLQ 1 {error} t t t"),
            text(&crew.owner, ends, &[&id]).await?,
        )?;
    }
    Ok(())
}

/// There is no arrow from PROCESSING to DLQ while retries are left.
async fn trial_dlq_refused(crew: &Crew, id: &str, token: &str) -> Result<(), Failure> {
    let before = row(&crew.owner, id).await?;
    let refused = mark(&crew.executor, "dlq", id, Some(token)).await;
    let happened = refused.as_ref().err().map_or("allowed", |error| code(error));
    require(|| "dead-lettering a claim with retries left".into(), "P7003", happened)?;
    require(|| "looking at it afterwards".into(), before, row(&crew.owner, id).await?)
}

/// Each refused with P7005, `$ID` and `$TOKEN` being an entry and its claim; as the role that may call it.
const INVALID: [&str; 32] = [
    "symphony.create_metadata_entry(null, 'a', '{}')",
    "symphony.create_metadata_entry('', 'a', '{}')",
    "symphony.create_metadata_entry(E' \\n', 'a', '{}')",
    "symphony.create_metadata_entry(repeat('t', 201), 'a', '{}')",
    "symphony.create_metadata_entry('t', null, '{}')",
    "symphony.create_metadata_entry('t', ' ', '{}')",
    "symphony.create_metadata_entry('t', repeat('a', 201), '{}')",
    "symphony.create_metadata_entry('t', 'a', null)",
    "symphony.create_metadata_entry('t', 'a', to_jsonb(repeat('x', 1048577)))",
    "symphony.create_metadata_entry('t', 'a', '{}', null)",
    "symphony.create_metadata_entry('t', 'a', '{}', 0)",
    "symphony.create_metadata_entry('t', 'a', '{}', 101)",
    "symphony.claim_metadata_batch(null, 1)",
    "symphony.claim_metadata_batch(' ', 1)",
    "symphony.claim_metadata_batch('w', null)",
    "symphony.mark_metadata_published(null, '$TOKEN')",
    "symphony.mark_metadata_published('$ID', null)",
    "symphony.mark_metadata_failed('$ID', null, 'error')",
    "symphony.mark_metadata_failed('$ID', '$TOKEN', null)",
    "symphony.mark_metadata_failed('$ID', '$TOKEN', E'\\t ')",
    "symphony.mark_metadata_dlq(null, '$TOKEN', 'reason')",
    "symphony.mark_metadata_dlq('$ID', '$TOKEN', null)",
    "symphony.mark_metadata_dlq('$ID', null, ' ')",
    "symphony.complete_metadata_batch(null, null, null)",
    "symphony.complete_metadata_batch('{}', '{}', '{}')",
    "symphony.complete_metadata_batch(array['$ID']::uuid[], '{}', '{}')",
    "symphony.complete_metadata_batch(array_fill('$ID'::uuid, array[1001]), array_fill('$TOKEN'::uuid, array[1001]), array_fill('PUBLISHED'::text, array[1001]))",
    "symphony.repair_metadata_entries('0 seconds')",
    "symphony.repair_metadata_entries(null)",
    "symphony.repair_metadata_entries('5 minutes', 0)",
    "symphony.find_metadata_by_entity(' ', 't')",
    "symphony.find_metadata_by_entity('a', null)",
];

/// Refusals by row of a batch: the outcome, the error and what is said.
const ROWS: [(&str, &str, &str); 5] = [
    ("'DLQ'", "'reason'", "P7005"),
    ("'PENDING'", "'reason'", "P7005"),
    ("null", "'reason'", "P7005"),
    ("'FAILED'", "null", "P7005"),
    ("'FAILED'", "' '", "P7005"),
];

/// What is wrong is refused, says what, and changes nothing; a missing entry is told from one in another status.
pub(super) async fn refusals(database: &Database, trial: &mut Trial) -> Result<(), Failure> {
    let crew = Crew::hire(database).await?;
    clear(&crew).await?;
    let (id, token) = entry_in(&crew, "refusals", Status::Processing).await?;
    let token = token.unwrap_or_default();
    let before = everything(&crew.owner).await?;
    for call in INVALID {
        let call = format!("select {}", call.replace("$ID", &id).replace("$TOKEN", &token));
        let by = if call.contains("create") { &crew.ingest } else { &crew.executor };
        let happened =
            by.query(&call, &[]).await.err().map_or("allowed".to_owned(), |error| code(&error).to_owned());
        require(|| call.clone(), "P7005".to_owned(), happened)?;
    }
    for (outcome, error, expected) in ROWS {
        let call = format!(
            "select refusal from symphony.complete_metadata_batch(array['{id}']::uuid[], array['{token}']::uuid[], array[{outcome}]::text[], array[{error}]::text[])"
        );
        require(|| call.clone(), expected.to_owned(), text(&crew.executor, &call, &[]).await?)?;
    }
    let same = everything(&crew.owner).await? == before;
    trial.holds(
        format!("{} calls with something null, blank, too long or out of range", INVALID.len() + ROWS.len()),
        "each refused with P7005, nothing changed",
        format!("each refused with P7005, changed: {}", !same),
        same,
    )?;
    let nobodys = "00000000-0000-4000-8000-000000000000";
    for outcome in ["published", "failed", "dlq"] {
        trial.refused(
            format!("{outcome} on an entry that never was"),
            "P0002",
            mark(&crew.executor, outcome, nobodys, Some(&token)).await,
        )?;
    }
    Ok(())
}
