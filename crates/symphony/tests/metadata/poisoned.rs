//! A store that refuses some entries: they end in the DLQ when their retries are used up, each with one line in the log, and the rest goes on.

use std::collections::BTreeMap;

use serde_json::json;
use symphony_outbox::metadata::{Entity, Entry, producer};

use crate::course::Course;
use crate::second::Second;

/// What alerting looks for.
const LINE: &str = "metadata entry moved to DLQ";
/// What must not be logged.
const MARK: &str = "Planted-Mark";
const EACH: usize = 6;
const RETRIES: i32 = 2;

#[tokio::test]
async fn what_the_store_refuses_is_given_up_with_one_line_each_and_no_word_of_why() {
    let second = Second::postgres().await;
    // The server's own words would quote the row.
    let check = "alter table copies.symphony_metadata add check (entity_type <> 'poison')";
    second.admin().await.batch_execute(check).await.unwrap();
    let mut course = Course::open(second).await;
    course.orders.log_level = "trace";
    let relayers = [course.relayer().await, course.relayer().await];
    for kind in ["poison", "document"] {
        for number in 0..EACH {
            let entity = Entity::new(kind, format!("{number}")).unwrap();
            let metadata = json!({ "name": MARK, "mail": "ann@example.org" }).into();
            let entry = Entry { entity, metadata, max_retries: Some(RETRIES) };
            producer::create(&course.owner, &entry).await.unwrap();
        }
    }
    course.until("all have ended", async |course| course.ended().await == 2 * EACH).await;

    let all = "select id::text, entity_type, status::text, retry_count, last_error from symphony.metadata_outbox";
    let mut dead = BTreeMap::new();
    for row in course.owner.query(all, &[]).await.unwrap() {
        let (id, kind, status): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        if kind == "document" {
            assert_eq!((status.as_str(), row.get(3)), ("PUBLISHED", 0));
            continue;
        }
        assert_eq!((status.as_str(), row.get(3)), ("DLQ", RETRIES));
        let error: String = row.get(4);
        assert!(error.contains("23514") && !error.contains(MARK), "{error}");
        dead.insert(id, 0);
    }
    assert_eq!(dead.len(), EACH);
    let kept = course.second.read().await;
    assert_eq!(kept.keys().filter(|(kind, _)| kind == "document").count(), EACH);
    assert_eq!(kept.len(), EACH);
    for relayer in &relayers {
        let metrics = relayer.metrics().await;
        assert!(metrics.contains(&format!("symphony_dlq_depth{{lane=\"metadata\"}} {EACH}")), "{metrics}");
    }

    for relayer in relayers {
        relayer.stop().await;
        for line in relayer.lines().await {
            for planted in [MARK, "ann@example.org", "does not take it", "23514"] {
                assert!(!line.contains(planted), "{line}");
            }
            if line.contains(LINE) {
                let line: serde_json::Value = serde_json::from_str(&line).unwrap();
                assert_eq!((&line["level"], &line["message"]), (&json!("ERROR"), &json!(LINE)), "{line}");
                assert_eq!(line["event"], "METADATA_OUTBOX_DLQ", "{line}");
                *dead.get_mut(line["entry"].as_str().unwrap()).unwrap() += 1;
            }
        }
    }
    assert!(dead.values().all(|lines| *lines == 1), "{dead:?}");
}
