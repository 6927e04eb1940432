//! A store that refuses some entries: after their last retry they move to the DLQ, each with one log line. All others
//! are written.

use std::collections::BTreeMap;

use serde_json::json;
use symphony_client::metadata::tokio_postgres as client_api;
use symphony_db::metadata::{Entity, Entry};

use crate::harness::Harness;
use crate::second_store::SecondStore;

/// The message that alerts match.
const LINE: &str = "metadata entry moved to DLQ";
/// Text that must not be logged.
const MARK: &str = "Planted-Mark";
/// Entries of each kind.
const ENTRIES: usize = 6;
const MAX_RETRIES: i32 = 2;

#[tokio::test]
async fn what_the_store_refuses_moves_to_the_dlq_with_one_log_line_each_and_no_error_text() {
    let store = SecondStore::postgres().await;
    // PostgreSQL's error message would quote the row.
    let check = "alter table copies.symphony_metadata add check (entity_type <> 'poison')";
    store.admin().await.batch_execute(check).await.unwrap();
    let mut harness = Harness::start(store).await;
    harness.settings.log_level = "trace";
    let relayers = [harness.start_relayer().await, harness.start_relayer().await];
    for kind in ["poison", "document"] {
        for number in 0..ENTRIES {
            let entity = Entity::new(kind, format!("{number}")).unwrap();
            let metadata = json!({ "name": MARK, "mail": "ann@example.org" });
            let entry = Entry::new(entity, metadata).with_max_retries(MAX_RETRIES);
            client_api::create(&harness.superuser, &entry).await.unwrap();
        }
    }
    harness.wait_until("all have ended", async |harness| harness.ended().await == 2 * ENTRIES).await;

    let all = "select id::text, entity_type, status::text, retry_count, last_error from symphony.metadata_outbox";
    let mut log_lines = BTreeMap::new();
    for row in harness.superuser.query(all, &[]).await.unwrap() {
        let (id, kind, status): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        if kind == "document" {
            assert_eq!((status.as_str(), row.get(3)), ("PUBLISHED", 0));
            continue;
        }
        assert_eq!((status.as_str(), row.get(3)), ("DLQ", MAX_RETRIES));
        let error: String = row.get(4);
        assert!(error.contains("23514") && !error.contains(MARK), "{error}");
        log_lines.insert(id, 0);
    }
    assert_eq!(log_lines.len(), ENTRIES);
    let stored = harness.store.read().await;
    assert_eq!(stored.keys().filter(|(kind, _)| kind == "document").count(), ENTRIES);
    assert_eq!(stored.len(), ENTRIES);
    for relayer in &relayers {
        let metrics = relayer.metrics().await;
        assert!(metrics.contains(&format!("symphony_dlq_depth{{lane=\"metadata\"}} {ENTRIES}")), "{metrics}");
    }

    for relayer in relayers {
        relayer.stop().await;
        for line in relayer.log_lines().await {
            for planted in [MARK, "ann@example.org", "the database rejects it", "23514"] {
                assert!(!line.contains(planted), "{line}");
            }
            if line.contains(LINE) {
                let line: serde_json::Value = serde_json::from_str(&line).unwrap();
                assert_eq!((&line["level"], &line["message"]), (&json!("ERROR"), &json!(LINE)), "{line}");
                assert_eq!(line["event"], "METADATA_OUTBOX_DLQ", "{line}");
                *log_lines.get_mut(line["entry"].as_str().unwrap()).unwrap() += 1;
            }
        }
    }
    assert!(log_lines.values().all(|count| *count == 1), "{log_lines:?}");
}
