//! What a producer over tokio-postgres may rely on.

use serde_json::json;
use symphony_outbox::error::Fault;
use symphony_outbox::error::metadata::CreateError;
use symphony_outbox::metadata::{Entity, Entry, producer};

use crate::stage::{OUTBOX, Stage, entity, entry};

#[tokio::test]
async fn an_entry_is_committed_or_rolled_back_with_its_entity() {
    let stage = Stage::set().await;
    let mut client = stage.login("symphony_ingest").await;
    for (commits, rows) in [(false, 0), (true, 1)] {
        let transaction = client.transaction().await.unwrap();
        transaction.batch_execute("insert into documents values ('document-1')").await.unwrap();
        producer::create(&transaction, &entry(1)).await.unwrap();
        assert_eq!(stage.count(OUTBOX).await, 0, "nobody sees it before the commit");
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        assert_eq!((stage.count("documents").await, stage.count(OUTBOX).await), (rows, rows));
    }
}

#[tokio::test]
async fn an_entry_comes_out_as_it_went_in_with_every_digit() {
    let stage = Stage::set().await;
    let metadata = serde_json::from_str(r#"[100000000000000000.010, null, "x"]"#).unwrap();
    let id = producer::create(&stage.root, &Entry { metadata, ..entry(1) }).await.unwrap();
    let claimed = stage.claim().await.remove(0);
    assert_eq!((claimed.id(), &claimed.entity), (id, &entity(1)));
    assert_eq!(claimed.metadata.as_json().replace(' ', ""), r#"[100000000000000000.010,null,"x"]"#);
    assert_eq!((claimed.retry_count, claimed.max_retries), (0, 20));
    assert_eq!(claimed.version, claimed.created_at.as_microsecond());
}

#[tokio::test]
async fn refusals_are_sorted_and_keep_the_words_of_the_database() {
    let stage = Stage::set().await;
    let client = stage.login("symphony_ingest").await;
    let long = || "x".repeat(201);
    for (refused, words) in [
        (
            Entry { entity: Entity::new(long(), "1").unwrap(), ..entry(1) },
            "p_entity_type must have at most 200 characters",
        ),
        (
            Entry { entity: Entity::new("a", long()).unwrap(), ..entry(1) },
            "p_entity_id must have at most 200 characters",
        ),
        (
            Entry { metadata: json!("x".repeat(1 << 20)).into(), ..entry(1) },
            "p_metadata must have at most 1048576 bytes",
        ),
        (Entry { max_retries: Some(0), ..entry(1) }, "p_max_retries must be from 1 to 100"),
        (Entry { max_retries: Some(101), ..entry(1) }, "p_max_retries must be from 1 to 100"),
    ] {
        let error = producer::create(&client, &refused).await.unwrap_err();
        let CreateError::InvalidArgument(report) = &error else { panic!("{error:?}") };
        assert_eq!(report.sqlstate(), Some("P7005"));
        assert!(report.message().contains(words), "{error}");
    }
    // PostgreSQL's own: jsonb cannot hold this character.
    let nul = Entry { metadata: json!("\0").into(), ..entry(1) };
    let error = producer::create(&client, &nul).await.unwrap_err();
    assert!(matches!(error, CreateError::InvalidArgument(_)), "{error:?}");
    assert_eq!(stage.count(OUTBOX).await, 0);
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_one_it_lacks() {
    let stage = Stage::set().await;
    let client = stage.login("symphony_executor").await;
    let error = producer::create(&client, &entry(1)).await.unwrap_err();
    assert!(matches!(error, CreateError::Fault(Fault::MissingRole { role: "symphony_ingest", .. })), "{error:?}");
}
