//! Entries that the store cannot process do not stop the others.

use crate::fixture::{Fixture, POISON};

#[tokio::test]
async fn a_hundred_entries_that_fail_do_not_stop_the_others() {
    let fixture = Fixture::new().await;
    for (entity_type, count) in [(POISON, 100), ("document", 50)] {
        for number in 0..count {
            fixture.create(entity_type, &number.to_string(), 20).await;
        }
    }
    let relayer = fixture.start("*");
    fixture.until("the others are published", async || fixture.count("status = 'PUBLISHED'").await == 50).await;
    assert_eq!(fixture.count("entity_type = 'poison' and status <> 'PUBLISHED'").await, 100);
    relayer.stop().await;
}
