//! What a producer over sqlx may rely on: the same as over tokio-postgres.

use sqlx::{Connection, PgConnection};
use symphony_client::error::CreateError;
use symphony_client::metadata;

use crate::fixture::{ENTRIES, Fixture, entry};

#[tokio::test]
async fn an_entry_is_committed_with_its_entity_and_refusals_are_sorted() {
    let fixture = Fixture::new().await;
    let url = fixture.database.url_as_login(&["symphony_ingest"]).await.unwrap();
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for (commits, rows) in [(false, 0), (true, 2)] {
        let mut transaction = connection.begin().await.unwrap();
        metadata::sqlx::create(&mut transaction, &entry(1)).await.unwrap();
        let bounded = entry(2).with_max_retries(7);
        metadata::sqlx::create(&mut transaction, &bounded).await.unwrap();
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        assert_eq!(fixture.count(ENTRIES).await, rows);
    }
    let bounds = "select string_agg(max_retries::text, ' ' order by created_at, max_retries desc) from symphony.metadata_outbox";
    assert_eq!(fixture.text(bounds).await, "20 7");

    let refused = entry(1).with_max_retries(-1);
    let error = metadata::sqlx::create(&mut connection, &refused).await.unwrap_err();
    assert!(
        matches!(&error, CreateError::InvalidArgument(report) if report.sqlstate() == Some("P7005")),
        "{error:?}"
    );
}
