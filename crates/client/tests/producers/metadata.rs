//! What a producer over tokio-postgres may rely on.

use serde_json::json;
use symphony_client::error::{CreateError, DatabaseError};
use symphony_client::metadata::{self, Entity};

use crate::fixture::{ENTRIES, Fixture, changed, entity, entry};

#[tokio::test]
async fn an_entry_is_committed_or_rolled_back_with_its_entity() {
    let fixture = Fixture::new().await;
    let mut client = fixture.login("symphony_ingest").await;
    for (commits, rows) in [(false, 0), (true, 1)] {
        let transaction = client.transaction().await.unwrap();
        transaction.batch_execute("insert into documents values ('document-1')").await.unwrap();
        metadata::tokio_postgres::create(&transaction, &entry(1)).await.unwrap();
        assert_eq!(fixture.count(ENTRIES).await, 0, "not visible before the commit");
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        assert_eq!((fixture.count("documents").await, fixture.count(ENTRIES).await), (rows, rows));
    }
}

#[tokio::test]
async fn an_entry_comes_out_as_it_went_in_with_every_digit() {
    let fixture = Fixture::new().await;
    let metadata = serde_json::from_str(r#"[100000000000000000.010, null, "x"]"#).unwrap();
    let id = metadata::tokio_postgres::create(&fixture.root, &changed(entry(1), |it| it.metadata = metadata))
        .await
        .unwrap();
    let row = fixture
        .root
        .query_one(
            "select id, entity_type, entity_id, metadata::text, retry_count, max_retries from symphony.metadata_outbox",
            &[],
        )
        .await
        .unwrap();
    let kept = entity(1);
    assert_eq!(row.get::<_, uuid::Uuid>(0), id.0);
    assert_eq!((row.get(1), row.get(2)), (kept.entity_type(), kept.entity_id()));
    assert_eq!(row.get::<_, String>(3).replace(' ', ""), r#"[100000000000000000.010,null,"x"]"#);
    assert_eq!((row.get::<_, i32>(4), row.get::<_, i32>(5)), (0, 20));
}

#[tokio::test]
async fn refusals_are_sorted_and_keep_the_words_of_the_database() {
    let fixture = Fixture::new().await;
    let client = fixture.login("symphony_ingest").await;
    let long = || "x".repeat(201);
    for (refused, words) in [
        (
            changed(entry(1), |it| it.entity = Entity::new(long(), "1").unwrap()),
            "p_entity_type must have at most 200 characters",
        ),
        (
            changed(entry(1), |it| it.entity = Entity::new("a", long()).unwrap()),
            "p_entity_id must have at most 200 characters",
        ),
        (
            changed(entry(1), |it| it.metadata = json!("x".repeat(1 << 20)).into()),
            "p_metadata must have at most 1048576 bytes",
        ),
        (entry(1).with_max_retries(0), "p_max_retries must be from 1 to 100"),
        (entry(1).with_max_retries(101), "p_max_retries must be from 1 to 100"),
    ] {
        let error = metadata::tokio_postgres::create(&client, &refused).await.unwrap_err();
        let CreateError::InvalidArgument(report) = &error else { panic!("{error:?}") };
        assert_eq!(report.sqlstate(), Some("P7005"));
        assert!(report.message().contains(words), "{error}");
    }
    // PostgreSQL's own: jsonb cannot hold this character.
    let nul = changed(entry(1), |it| it.metadata = json!("\0").into());
    let error = metadata::tokio_postgres::create(&client, &nul).await.unwrap_err();
    assert!(matches!(error, CreateError::InvalidArgument(_)), "{error:?}");
    assert_eq!(fixture.count(ENTRIES).await, 0);
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_one_it_lacks() {
    let fixture = Fixture::new().await;
    let client = fixture.login("symphony_executor").await;
    let error = metadata::tokio_postgres::create(&client, &entry(1)).await.unwrap_err();
    assert!(
        matches!(error, CreateError::Database(DatabaseError::MissingRole { role: "symphony_ingest", .. })),
        "{error:?}"
    );
}
