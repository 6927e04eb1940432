//! What a producer over sqlx may rely on: the same as over tokio-postgres.

use sqlx::{Connection, PgConnection};
use symphony_outbox::error::metadata::CreateError;
use symphony_outbox::metadata::{Entry, producer_sqlx};

use crate::stage::{OUTBOX, Stage, entry};

#[tokio::test]
async fn an_entry_is_committed_with_its_entity_and_refusals_are_sorted() {
    let stage = Stage::set().await;
    let url = stage.database.url_as_login(&["symphony_ingest"]).await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for (commits, rows) in [(false, 0), (true, 2)] {
        let mut transaction = connection.begin().await.unwrap();
        producer_sqlx::create(&mut transaction, &entry(1)).await.unwrap();
        let bounded = Entry { max_retries: Some(7), ..entry(2) };
        producer_sqlx::create(&mut transaction, &bounded).await.unwrap();
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        assert_eq!(stage.count(OUTBOX).await, rows);
    }
    let bounds: Vec<_> = stage.claim().await.iter().map(|claimed| claimed.max_retries).collect();
    assert_eq!(bounds, [20, 7]);

    let refused = Entry { max_retries: Some(-1), ..entry(1) };
    let error = producer_sqlx::create(&mut connection, &refused).await.unwrap_err();
    assert!(
        matches!(&error, CreateError::InvalidArgument(report) if report.sqlstate() == Some("P7005")),
        "{error:?}"
    );
}
