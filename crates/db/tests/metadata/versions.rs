//! Later writes of one entity have higher versions, from any session and whatever the clock does.

use symphony_client::metadata::tokio_postgres as producer;
use symphony_db::BatchSize;
use symphony_db::metadata::reader;
use symphony_testkit::wait;

use crate::fixture::{Fixture, entity, entry};

#[tokio::test]
async fn who_commits_later_has_the_higher_version_though_it_began_first() {
    let fixture = Fixture::new().await;
    let mut first = fixture.database.connect().await.unwrap();
    let mut second = fixture.database.connect().await.unwrap();
    let pid: i32 = second.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);

    let early = first.transaction().await.unwrap();
    // The later one has its transaction and its snapshot before the other writes.
    let late = second.transaction().await.unwrap();
    late.query_one("select count(*) from symphony.metadata_outbox_entries", &[]).await.unwrap();
    let before = producer::create(&early, &entry(1)).await.unwrap();
    let creates = async {
        let after = producer::create(&late, &entry(1)).await.unwrap();
        late.commit().await.unwrap();
        after
    };
    let commits = async {
        let waits = "select count(*) from pg_locks where pid = $1 and locktype = 'transactionid' and not granted";
        wait::until("the second waits for the entity", wait::DEFAULT_TIMEOUT, async || {
            fixture.root.query_one(waits, &[&pid]).await.unwrap().get::<_, i64>(0) == 1
        })
        .await
        .unwrap();
        early.commit().await.unwrap();
    };
    let (after, ()) = tokio::join!(creates, commits);
    let found = reader::find_by_entity(&fixture.root, &entity(1), BatchSize::MAX).await.unwrap();
    assert_eq!(found.iter().map(|state| state.id).collect::<Vec<_>>(), [after, before]);
    assert!(found[0].created_at > found[1].created_at, "{found:?}");
}

#[tokio::test]
async fn others_entities_are_not_waited_for() {
    let fixture = Fixture::new().await;
    let mut first = fixture.database.connect().await.unwrap();
    let open = first.transaction().await.unwrap();
    producer::create(&open, &entry(1)).await.unwrap();
    fixture.create(2).await;
    assert_eq!(fixture.claim().await.len(), 1);
}

#[tokio::test]
async fn a_clock_that_steps_back_does_not_turn_versions_around() {
    let fixture = Fixture::new().await;
    let future = "insert into symphony.metadata_outbox (id, entity_id, entity_type, metadata, max_retries, created_at, updated_at) \
                  values (gen_random_uuid(), 'document-1', 'document', '{}', 3, now() + interval '1 day', now())";
    fixture.root.batch_execute(future).await.unwrap();
    let (second, third) = (fixture.create(1).await, fixture.create(1).await);
    let other = fixture.create(2).await;
    let found = reader::find_by_entity(&fixture.root, &entity(1), BatchSize::MAX).await.unwrap();
    assert_eq!(found[..2].iter().map(|state| state.id).collect::<Vec<_>>(), [third, second]);
    let versions: Vec<_> = found.iter().map(|state| state.created_at.as_microsecond()).collect();
    assert_eq!(versions, [versions[2] + 2, versions[2] + 1, versions[2]]);
    let other = reader::entry(&fixture.root, other).await.unwrap().unwrap();
    assert!(other.created_at.as_microsecond() < versions[2], "another entity goes by the clock");
}

#[tokio::test]
async fn many_writers_of_one_entity_get_versions_that_differ() {
    let fixture = Fixture::new().await;
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let client = fixture.database.connect().await.unwrap();
        writers.spawn(async move {
            for _ in 0..10 {
                producer::create(&client, &entry(1)).await.unwrap();
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    assert_eq!(fixture.count("(select distinct created_at from symphony.metadata_outbox) d").await, 80);
}
