//! What each function does with an entry in each status: the same transitions, as the roles that may call it.

use std::collections::BTreeSet;

use symphony_db::metadata::Status;

use super::super::evidence::{Failure, Recorder, require, sqlstate};
use super::super::sessions::{Sessions, text};
use super::calls::{
    age_claim, all_rows, claim, claim_this, create, entry_in, make_due, mark, repair, row, status,
};
use symphony_testkit::test_database::Database;

/// Publishes every claimable entry.
async fn clear(sessions: &Sessions) -> Result<(), Failure> {
    make_due(&sessions.owner).await?;
    for claimed in claim(&sessions.executor, "end", 1000).await? {
        mark(&sessions.executor, "published", &claimed.id, Some(&claimed.token)).await?;
    }
    Ok(())
}

/// Every function on an entry in every status: only the five allowed transitions happen.
pub(super) async fn from_every_status(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    let unknown_id = "00000000-0000-4000-8000-000000000000";
    let mut seen = BTreeSet::new();
    let mut refusals = 0;
    for from in Status::ALL {
        for function in ["claim", "published", "failed", "dlq", "dlq without a token", "repair"] {
            clear(&sessions).await?;
            let (id, token) = entry_in(&sessions, "moves", *from).await?;
            make_due(&sessions.owner).await?;
            let before = row(&sessions.owner, &id).await?;
            let claimed = token.as_deref().unwrap_or(unknown_id);
            let done = match function {
                "claim" => claim(&sessions.executor, "worker", 1000).await.map(drop),
                "repair" => repair(&sessions.executor).await.map(drop),
                "dlq without a token" => mark(&sessions.executor, "dlq", &id, None).await,
                outcome => mark(&sessions.executor, outcome, &id, Some(claimed)).await,
            };
            let now = status(&sessions.owner, &id).await?;
            let tried = || format!("{function} on an entry that is {from}");
            if let Err(error) = &done {
                let expected = match (from, function) {
                    (Status::Published | Status::Dlq, _) => "P7001",
                    (Status::Processing, "dlq without a token") => "P7002",
                    _ => "P7003",
                };
                require(tried, expected, sqlstate(error))?;
                require(tried, &before, &row(&sessions.owner, &id).await?)?;
                refusals += 1;
            }
            if now != from.as_str() {
                seen.insert(format!("{from}→{now}"));
            }
        }
    }
    // An expired claim, and one without retries left, make the remaining transitions.
    clear(&sessions).await?;
    let (id, _) = entry_in(&sessions, "moves", Status::Processing).await?;
    age_claim(&sessions.owner, &id, "5 minutes 1 second").await?;
    require(
        || "repairing".into(),
        format!("{:?}", [(&id, "FAILED")]),
        format!("{:?}", repair(&sessions.executor).await?),
    )?;
    let error =
        text(&sessions.owner, "select last_error from symphony.metadata_outbox where id = $1::text::uuid", &[&id])
            .await?;
    recorder.check_equal(
        "repairing a claim that is older than 5 minutes",
        "error",
        "LEASE_EXPIRED".to_owned(),
        error,
    )?;
    let allowed: BTreeSet<_> =
        ["PENDING→PROCESSING", "PROCESSING→PUBLISHED", "PROCESSING→FAILED", "FAILED→PROCESSING", "FAILED→DLQ"]
            .map(str::to_owned)
            .into();
    recorder.check(
        format!("every function on entries in every status, {refusals} calls refused"),
        "the five allowed transitions and no other",
        seen.iter().cloned().collect::<Vec<_>>().join(", "),
        seen == allowed && refusals == 17,
    )
}

/// The last retry: by mark_metadata_*, by the batch and by repair.
pub(super) async fn last_retry(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    clear(&sessions).await?;
    let delays = "select string_agg(extract(epoch from next_retry_at - updated_at)::numeric::int::text, ' ') from symphony.metadata_outbox where id = $1::text::uuid";

    let id = create(&sessions.ingest, "last retry", 13).await?;
    let mut seconds = Vec::new();
    for failure in 1..=13 {
        let claimed = claim_this(&sessions, &id).await?;
        if failure < 13 {
            require_dlq_refused(&sessions, &claimed.id, &claimed.token).await?;
        }
        mark(&sessions.executor, "failed", &id, Some(&claimed.token)).await?;
        seconds.push(text(&sessions.owner, delays, &[&id]).await?);
        make_due(&sessions.owner).await?;
    }
    recorder.check_equal(
        "failing 13 times with 13 retries",
        "seconds of backoff, and none after the last",
        "1 2 4 8 16 32 64 128 256 512 1024 1024 none".to_owned(),
        seconds.join(" "),
    )?;
    let found = claim(&sessions.executor, "worker", 1000).await?.len();
    recorder.check_equal("claiming a FAILED entry without retries left", "entries", 0, found)?;
    let repaired = repair(&sessions.executor).await?;
    recorder.check_equal(
        "repairing a FAILED entry without retries left",
        "entries",
        format!("{:?}", [(&id, "DLQ")]),
        format!("{repaired:?}"),
    )?;

    let ends = "select concat_ws(' ', status, retry_count, last_error, next_retry_at is null, claim_token is null, processed_at is null)
                from symphony.metadata_outbox where id = $1::text::uuid";
    for (by, error) in [("dlq", "rejected"), ("batch", "store unavailable"), ("repair", "LEASE_EXPIRED")] {
        let id = create(&sessions.ingest, "last retry", 1).await?;
        let claimed = claim_this(&sessions, &id).await?;
        match by {
            "dlq" => mark(&sessions.executor, "dlq", &id, Some(&claimed.token)).await?,
            "batch" => {
                let call = "select status::text from symphony.complete_metadata_batch(
                              array[$1::text::uuid], array[$2::text::uuid], array['FAILED'], array['store unavailable'])";
                let answered = text(&sessions.executor, call, &[&id, &claimed.token]).await?;
                require(|| "the answer of the batch".into(), "DLQ".to_owned(), answered)?;
            }
            _ => {
                age_claim(&sessions.owner, &id, "5 minutes 1 second").await?;
                repair(&sessions.executor).await?;
            }
        }
        recorder.check_equal(
            format!("the last retry ended by {by}"),
            "entry",
            format!("DLQ 1 {error} t t t"),
            text(&sessions.owner, ends, &[&id]).await?,
        )?;
    }
    Ok(())
}

/// PROCESSING to DLQ is refused while retries are left.
async fn require_dlq_refused(sessions: &Sessions, id: &str, token: &str) -> Result<(), Failure> {
    let before = row(&sessions.owner, id).await?;
    let refused = mark(&sessions.executor, "dlq", id, Some(token)).await;
    let happened = refused.as_ref().err().map_or("allowed", |error| sqlstate(error));
    require(|| "dead-lettering a claim with retries left".into(), "P7003", happened)?;
    require(|| "reading it afterwards".into(), before, row(&sessions.owner, id).await?)
}

/// Calls that are refused with P7005. `$ID` and `$TOKEN` are an entry and its claim token.
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

/// Refusals per row of a batch: the outcome, the error and the SQLSTATE.
const ROWS: [(&str, &str, &str); 5] = [
    ("'DLQ'", "'reason'", "P7005"),
    ("'PENDING'", "'reason'", "P7005"),
    ("null", "'reason'", "P7005"),
    ("'FAILED'", "null", "P7005"),
    ("'FAILED'", "' '", "P7005"),
];

/// Invalid arguments are refused and change nothing; a missing entry has another SQLSTATE than one in another status.
pub(super) async fn refusals(database: &Database, recorder: &mut Recorder) -> Result<(), Failure> {
    let sessions = Sessions::connect(database).await?;
    clear(&sessions).await?;
    let (id, token) = entry_in(&sessions, "refusals", Status::Processing).await?;
    let token = token.unwrap_or_default();
    let before = all_rows(&sessions.owner).await?;
    for call in INVALID {
        let call = format!("select {}", call.replace("$ID", &id).replace("$TOKEN", &token));
        let by = if call.contains("create") { &sessions.ingest } else { &sessions.executor };
        let happened =
            by.query(&call, &[]).await.err().map_or("allowed".to_owned(), |error| sqlstate(&error).to_owned());
        require(|| call.clone(), "P7005".to_owned(), happened)?;
    }
    for (outcome, error, expected) in ROWS {
        let call = format!(
            "select refusal from symphony.complete_metadata_batch(array['{id}']::uuid[], array['{token}']::uuid[], array[{outcome}]::text[], array[{error}]::text[])"
        );
        require(|| call.clone(), expected.to_owned(), text(&sessions.executor, &call, &[]).await?)?;
    }
    let same = all_rows(&sessions.owner).await? == before;
    recorder.check(
        format!(
            "{} calls with an argument that is null, blank, too long or out of range",
            INVALID.len() + ROWS.len()
        ),
        "each refused with P7005, nothing changed",
        format!("each refused with P7005, changed: {}", !same),
        same,
    )?;
    let unknown_id = "00000000-0000-4000-8000-000000000000";
    for outcome in ["published", "failed", "dlq"] {
        recorder.check_refused(
            format!("{outcome} on an entry that does not exist"),
            "P0002",
            mark(&sessions.executor, outcome, unknown_id, Some(&token)).await,
        )?;
    }
    Ok(())
}
