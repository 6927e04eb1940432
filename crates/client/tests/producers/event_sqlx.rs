//! What a publisher over sqlx may rely on: the same as over tokio-postgres.

use sqlx::Connection;
use symphony_client::error::{DatabaseError, PublishError};
use symphony_client::event;

use crate::fixture::{EVENTS, Fixture, changed, event};

#[tokio::test]
async fn an_event_is_committed_or_rolled_back_with_its_business_row() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.login_sqlx("symphony_ingest").await;
    for (commits, rows) in [(false, 0), (true, 1)] {
        let mut transaction = connection.begin().await.unwrap();
        sqlx::query("insert into orders values ('order-1')").execute(&mut *transaction).await.unwrap();
        event::sqlx::publish(&mut transaction, &event(1)).await.unwrap();
        assert_eq!(fixture.count(EVENTS).await, 0, "not visible before the commit");
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        assert_eq!((fixture.count("orders").await, fixture.count(EVENTS).await), (rows, rows));
    }
}

#[tokio::test]
async fn refusals_are_sorted() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.login_sqlx("symphony_ingest").await;
    let blank = changed(event(1), |it| it.event_type = "\n".to_owned());
    let error = event::sqlx::publish(&mut connection, &blank).await.unwrap_err();
    assert!(
        matches!(&error, PublishError::InvalidArgument(report) if report.sqlstate() == Some("P7005")),
        "{error:?}"
    );

    let mut connection = fixture.login_sqlx("symphony_readonly").await;
    let error = event::sqlx::publish(&mut connection, &event(1)).await.unwrap_err();
    assert!(
        matches!(error, PublishError::Database(DatabaseError::MissingRole { role: "symphony_ingest", .. })),
        "{error:?}"
    );
}
