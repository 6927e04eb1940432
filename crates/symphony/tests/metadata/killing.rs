//! Two relayers carry metadata while relayers and the second store are killed, at moments of progress by chance. Afterwards each entry has ended
//! once, and the store holds the latest metadata of each entity.
//!
//! `SYMPHONY_SEED` repeats the moments.

use std::hash::{BuildHasher, RandomState};

use crate::course::Course;
use crate::second::Second;

/// How many times something is killed, and how many entries are written each time.
const ROUNDS: usize = 6;
const ENTRIES: usize = 120;

async fn run(second: Second) {
    let given = std::env::var("SYMPHONY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = given.unwrap_or_else(|| RandomState::new().hash_one("a moment") % 1_000_000);
    println!("SYMPHONY_SEED={seed}");
    let mut course = Course::open(second).await;
    let mut relayers = [course.relayer().await, course.relayer().await];
    for round in 0..ROUNDS {
        let before = course.ended().await;
        let writing = course.begin(ENTRIES);
        // Where there is still something under way.
        let chance = seed.wrapping_mul(6_364_136_223_846_793_005).rotate_left(u32::try_from(round).unwrap() * 7);
        let moment = before + usize::try_from(chance % (ENTRIES as u64 / 2)).unwrap();
        course.until("it is time to kill", async |course| course.ended().await >= moment).await;
        if round % 2 == 0 {
            course.second.kill().await;
            course.finish(writing).await;
            let (failures, writing) = (course.failures().await, course.begin(ENTRIES / 4));
            course.finish(writing).await;
            course.until("the store is missed", async |course| course.failures().await > failures).await;
            course.second.revive().await;
        } else {
            course.kill(&mut relayers[round / 2 % 2]).await;
            course.finish(writing).await;
        }
    }
    course.until_all_ended().await;
    course.audit().await;
    println!("{} entries, tried in vain {} times", course.count(), course.failures().await);
    for relayer in &relayers {
        let metrics = relayer.metrics().await;
        assert!(metrics.contains("symphony_dlq_depth{lane=\"metadata\"} 0"), "{metrics}");
        assert!(!metrics.contains("lane=\"event\"") && !metrics.contains("lane=\"payment\""), "{metrics}");
        assert_eq!(relayer.ask("/readyz").await.0, 200);
        relayer.stop().await;
    }
}

#[tokio::test]
async fn postgres_holds_the_latest_of_each_entity_though_relayers_and_store_are_killed() {
    run(Second::postgres().await).await;
}

#[tokio::test]
async fn redis_holds_the_latest_of_each_entity_though_relayers_and_store_are_killed() {
    run(Second::redis().await).await;
}
