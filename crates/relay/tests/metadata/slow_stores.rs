//! Stores that do not answer leave slots to one that does, however many they are and however much waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fixture::{FakeStore, Fixture, SLOTS};

/// What waits for the slow ones, more than a claim reads of one kind.
const WAITING: i64 = 15_000;
const QUICK: i64 = 300;

async fn create(fixture: &Fixture, entity_type: &str, from: i64, count: i64) {
    let create = "select count(symphony.create_metadata_entry($1, i::text, '{}')) from generate_series($2::bigint, $2 + $3 - 1) i";
    fixture.owner.query(create, &[&entity_type, &from, &count]).await.unwrap();
}

async fn slow_stores_leave_slots(slow: usize) {
    let fixture = Fixture::new().await;
    let name = |number: usize| format!("slow-{number}");
    let stores: BTreeMap<String, Arc<FakeStore>> =
        (0..slow).map(name).chain(["quick".to_owned()]).map(|name| (name, Arc::default())).collect();
    for number in 0..slow {
        stores[&name(number)].block();
        create(&fixture, &name(number), 1, WAITING / i64::try_from(slow).unwrap()).await;
        if number == slow / 2 {
            create(&fixture, "quick", 1, QUICK).await;
        }
    }
    let relayer = fixture.start_with(&stores);
    fixture.until_ended(QUICK).await;
    create(&fixture, "quick", QUICK + 1, QUICK).await;
    fixture.until_ended(2 * QUICK).await;

    let running: usize = (0..slow).map(|number| stores[&name(number)].running()).sum();
    assert!((slow..=SLOTS * 3 / 4 + slow).contains(&running), "{running} of {SLOTS} slots");
    assert_eq!(fixture.count("retry_count > 0").await, 0, "nothing was claimed that had no slot");
    (0..slow).for_each(|number| stores[&name(number)].unblock());
    relayer.stop().await;
}

#[tokio::test]
async fn two_stores_that_do_not_answer_leave_slots_to_a_third() {
    slow_stores_leave_slots(2).await;
}

#[tokio::test]
async fn twelve_stores_that_do_not_answer_leave_slots_to_another() {
    slow_stores_leave_slots(12).await;
}
