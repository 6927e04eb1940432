//! What a publisher over sqlx may rely on: the same as over tokio-postgres.

use sqlx::{Connection, PgConnection};
use symphony_outbox::error::Fault;
use symphony_outbox::error::event::PublishError;
use symphony_outbox::event::{Event, publisher_sqlx};

use crate::stage::{OUTBOX, Stage, event};

async fn login(stage: &Stage, role: &str) -> PgConnection {
    PgConnection::connect(&stage.database.url_as_login(&[role]).await.unwrap()).await.unwrap()
}

#[tokio::test]
async fn an_event_is_committed_or_rolled_back_with_its_business_row() {
    let stage = Stage::set().await;
    let mut connection = login(&stage, "symphony_ingest").await;
    for (commits, rows) in [(false, 0), (true, 1)] {
        let mut transaction = connection.begin().await.unwrap();
        sqlx::query("insert into orders values ('order-1')").execute(&mut *transaction).await.unwrap();
        publisher_sqlx::publish(&mut transaction, &event(1)).await.unwrap();
        assert_eq!(stage.count(OUTBOX).await, 0, "nobody sees it before the commit");
        if commits {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
        assert_eq!((stage.count("orders").await, stage.count(OUTBOX).await), (rows, rows));
    }
}

#[tokio::test]
async fn refusals_are_sorted() {
    let stage = Stage::set().await;
    let mut connection = login(&stage, "symphony_ingest").await;
    let blank = Event { event_type: "\n".to_owned(), ..event(1) };
    let error = publisher_sqlx::publish(&mut connection, &blank).await.unwrap_err();
    assert!(
        matches!(&error, PublishError::InvalidArgument(report) if report.sqlstate() == Some("P7005")),
        "{error:?}"
    );

    let mut connection = login(&stage, "symphony_readonly").await;
    let error = publisher_sqlx::publish(&mut connection, &event(1)).await.unwrap_err();
    assert!(matches!(error, PublishError::Fault(Fault::MissingRole { role: "symphony_ingest", .. })), "{error:?}");
}
