//! `symphony archive` and `symphony retention` on a real database: what is exported, what is refused, and a run that is
//! killed between its steps.
//!
//! # Layout
//! - [`fixture`]: a ledger of some weeks, and runs of the program
//! - [`crash_recovery`]: the process dies between two steps
//! - [`concurrent_load`]: producers and workers while a partition is archived
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, but does not recognise helpers outside of test functions"
)]

mod concurrent_load;
mod crash_recovery;
mod fixture;
#[path = "../program/mod.rs"]
mod program;

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use symphony_testkit::tool::{self, Tool};

use fixture::{Fixture, ROWS_PER_WEEK};
use program::symphony;

/// The line of docs/archive.md, with the folder of the test.
fn count_with_duckdb(folder: &str) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/archive.md");
    let page = fs::read_to_string(page).unwrap();
    let line = page.lines().find(|line| line.contains("read_ndjson(")).unwrap();
    let statement = line.trim().trim_end_matches(';').replace("/srv/archive/shop", folder);
    let output = Command::new(tool::find(Tool::DuckDb).unwrap()).arg(statement).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn partitions_past_their_retention_are_archived_and_dropped_and_duckdb_reads_them() {
    let fixture = Fixture::new(4).await;
    let rows = fixture.ledger_rows().await;
    let plan = symphony(&fixture.owner_url, &["archive", "--to", fixture.folder(), "--dry-run", "--json"])
        .exits(0)
        .json();
    assert_eq!(plan["partitions"].as_array().unwrap().len(), 2, "{plan}");
    assert_eq!(fixture.ledger_rows().await, rows, "a dry run changes nothing");

    let report = fixture.archive(&["--json"]).exits(0).json();
    let archived = report["partitions"].as_array().unwrap();
    assert_eq!(archived.len(), 2, "{report}");
    let exported: i64 = archived.iter().map(|partition| partition["rows"].as_i64().unwrap()).sum();
    assert_eq!(exported, i64::from(2 * ROWS_PER_WEEK));
    assert_eq!(fixture.ledger_rows().await, rows - exported);
    assert_eq!(fixture.text("select string_agg(distinct operation, ',' order by operation) from symphony.payment_outbox_operations_log").await,
               "ARCHIVE_PARTITION,DROP_PARTITION,REGISTER_RAIL,RESOLVE,SET_RETENTION");
    fixture.starts_at_the_lowest_id().await;
    symphony(&fixture.owner_url, &["verify"]).exits(0);

    // The states and numbers are those that the ledger had.
    let answer = count_with_duckdb(fixture.folder());
    assert_eq!(answer, format!("DISPATCHED|{}\nFAILED|{}\nRETRYABLE|{}\n", ROWS_PER_WEEK * 2 - 4, 2, 2));

    let name = archived[0]["archive_name"].as_str().unwrap();
    let manifest: Value =
        serde_json::from_slice(&fs::read(fixture.path().join(name).join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["format"], "symphony-ledger-archive/1");
    assert_eq!(manifest["rows"], ROWS_PER_WEEK);
    assert_eq!(manifest["rows_by_state"], json!({ "DISPATCHED": ROWS_PER_WEEK - 2, "FAILED": 1, "RETRYABLE": 1 }));

    // Where a payment is now, by each of its names.
    let reader = fixture.database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let outbox = fixture
        .text("select outbox_id::text from symphony.payment_outbox_keys where instruction_id = 'i-7'")
        .await;
    for id in ["i-7", "k-7", &outbox] {
        let shown = symphony(&reader, &["inspect", id]).exits(0).stdout;
        assert!(
            shown.contains("archived on ") && shown.contains(name) && shown.contains(&outbox),
            "{id}: {shown}"
        );
    }
    let refused = fixture
        .query(&format!("select symphony.redrive_payment_outbox('{outbox}', 'ana', 'a test')"))
        .await
        .unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("were archived on"), "{refused:?}");

    // Nothing is left to do, and the next week is not due.
    assert_eq!(fixture.archive(&["--json"]).exits(0).json()["partitions"], json!([]));
}

#[tokio::test]
async fn a_retention_is_set_by_an_operator_and_keys_outlive_the_ledger() {
    let fixture = Fixture::new(1).await;
    let operator = fixture.database.url_as_login(&["symphony_operator"]).await.unwrap();
    let reader = fixture.database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let why = ["--actor", "ana", "--reason", "policy 7"];
    let set =
        |url: &str, kept: &str, keep: &str| symphony(url, &[&["retention", "set", kept, keep][..], &why].concat());
    set(&operator, "payment_ledger", "400d").exits(0);
    let refused = set(&operator, "payment_keys", "399d").exits(3);
    assert!(refused.stderr.contains("399 days, and the ledger for 400 days"), "{}", refused.stderr);
    set(&operator, "payment_keys", "400d").exits(0);
    let refused = set(&operator, "payment_ledger", "forever").exits(3);
    assert!(refused.stderr.contains("the ledger for ever"), "{}", refused.stderr);
    set(&operator, "events", "0d").exits(2);
    set(&reader, "events", "30d").exits(3);
    let shown = symphony(&reader, &["retention", "show", "--json"]).exits(0).json();
    let days: Vec<_> = shown.as_array().unwrap().iter().map(|policy| policy["keep_days"].as_i64()).collect();
    assert_eq!(days, [Some(400), Some(400), None, None]);
}

#[tokio::test]
async fn what_still_needs_an_operator_or_a_worker_is_not_archived() {
    let fixture = Fixture::new(4).await;
    fixture
        .execute(
            "insert into symphony.payment_outbox_attempts
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state, claimed_at,
                worker_id, created_at, error_code)
             select symphony.uuidv7_lower_bound(l.ends_at - i * interval '1 minute'), 'open-' || i, 'p', i, 'open', 'bank', '{}', 1, 'FAILED', now(),
                    'w', now(), case i when 1 then 'REJECTED' else 'OUTCOME_UNKNOWN' end
             from (select * from symphony.list_partitions_to_archive() limit 1) l, generate_series(1, 2) i;
             insert into symphony.payment_outbox_pending
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload)
             select symphony.uuidv7_lower_bound(l.ends_at - interval '1 hour'), 'late', 'p', 9, 'late', 'bank', '{}'
             from (select * from symphony.list_partitions_to_archive() limit 1) l",
        )
        .await;
    let rows = fixture.ledger_rows().await;
    let report = fixture.archive(&["--json"]).exits(1).json();
    let blockers: Vec<_> = report["partitions"][0]["blockers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|blocker| (blocker["blocker"].as_str().unwrap(), blocker["outboxes"].as_i64().unwrap()))
        .collect();
    assert_eq!(blockers, [("DEAD_LETTER", 1), ("PENDING", 1), ("UNKNOWN_OUTCOME", 1)]);
    let text = fixture.archive(&[]).exits(1).stdout;
    assert!(text.contains("symphony dlq list"), "{text}");
    assert_eq!(fixture.ledger_rows().await, rows);
    assert_eq!(
        fs::read_dir(fixture.path()).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count(),
        0
    );

    // With the payment ended and the failures resolved, it is archived.
    fixture
        .execute(
            "insert into symphony.payment_outbox_keys (idempotency_key, instruction_id, outbox_id, content_digest)
             select idempotency_key, instruction_id, outbox_id, sha256('x') from symphony.payment_outbox_dlq;
             select symphony.resolve_payment_outbox(outbox_id, 'NOT_PAID', 'ana', 'a statement') from symphony.payment_outbox_dlq;
             select symphony.complete_outbox_attempt(c.outbox_id, c.lease_token, 'w', 'DISPATCHED') from symphony.claim_outbox_batch(10, 'w', 60) c",
        )
        .await;
    fixture.archive(&[]).exits(0);
}

#[tokio::test]
async fn a_damaged_archive_drops_nothing() {
    let fixture = Fixture::new(4).await;
    let rows = fixture.ledger_rows().await;
    assert_ne!(fixture.archive_until("archive_exported").code, 0);
    let folder = fixture.archives().remove(0);
    let part = folder.join("part-00001.ndjson.zst");
    let mut bytes = fs::read(&part).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&part, bytes).unwrap();
    let refused = fixture.archive(&[]).exits(1);
    assert!(
        refused.stderr.contains("damaged or incomplete") && refused.stderr.contains("hint: move"),
        "{}",
        refused.all()
    );
    assert_eq!(fixture.ledger_rows().await, rows);
    fs::remove_dir_all(folder).unwrap();
    fixture.archive(&[]).exits(0);
}

#[tokio::test]
async fn a_program_that_fails_after_the_export_drops_nothing() {
    let fixture = Fixture::new(4).await;
    let rows = fixture.ledger_rows().await;
    let refused = fixture.archive(&["--after-command", "/bin/false"]).exits(1);
    assert!(refused.stderr.contains("/bin/false failed"), "{}", refused.stderr);
    assert_eq!(fixture.ledger_rows().await, rows);
    let report = fixture
        .archive(&["--after-command", "/bin/true", "--location", "s3://bucket/shop/", "--json"])
        .exits(0)
        .json();
    let name = report["partitions"][0]["archive_name"].as_str().unwrap();
    assert_eq!(report["partitions"][0]["location"], format!("s3://bucket/shop/{name}"));
}

#[tokio::test]
async fn without_a_retention_or_the_owners_rights_nothing_is_archived() {
    let fixture = Fixture::new(4).await;
    let operator = fixture.database.url_as_login(&["symphony_operator"]).await.unwrap();
    let arguments = ["archive", "--to", fixture.folder(), "--actor", "ana", "--reason", "a test"];
    let refused = symphony(&operator, &arguments).exits(3);
    assert!(refused.stderr.contains("may not act as symphony_control"), "{}", refused.stderr);
    fixture.execute("select symphony.set_retention('payment_ledger', null, 'ana', 'a test')").await;
    let refused = fixture.archive(&[]).exits(1);
    assert!(refused.stderr.contains("symphony retention set payment_ledger"), "{}", refused.stderr);
}
