//! Test databases: their content, their isolation from each other, and their removal.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use symphony_testkit::test_database::Server;
use tokio_postgres::NoTls;

#[tokio::test]
async fn databases_created_at_the_same_time_share_a_template_and_no_data() {
    let server = Server::from_env().await.unwrap();
    let (one, other) = tokio::try_join!(server.database(), server.database()).unwrap();
    let client = one.connect_as("symphony_operator").await.unwrap();
    client.query("select symphony.register_payment_rail('sepa', '{}', 'me', 'a test')", &[]).await.unwrap();

    assert_eq!(rails(&one).await, 1);
    assert_eq!(rails(&other).await, 0);
}

#[tokio::test]
async fn a_login_has_the_roles_it_was_granted() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let url = database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);

    client.query("select outbox_id from symphony.payment_outbox_pending", &[]).await.unwrap();
    let refusal = client.execute("delete from symphony.payment_outbox_pending", &[]).await.unwrap_err();
    assert_eq!(refusal.code().unwrap().code(), "42501");
}

#[tokio::test]
async fn a_database_and_its_logins_are_removed_when_closed_or_dropped_in_a_panic() {
    let server = Server::from_env().await.unwrap();
    let closed = server.database().await.unwrap();
    let dropped = server.database().await.unwrap();
    let names = [closed.name().to_owned(), dropped.name().to_owned()];
    let login = closed.url_as_login(&[]).await.unwrap();
    let login = login.split("//").nth(1).unwrap().split(':').next().unwrap().to_owned();

    // Each still has an open connection.
    let _first = closed.connect().await.unwrap();
    let _second = dropped.connect().await.unwrap();
    closed.close().await.unwrap();
    let panicked = tokio::spawn(async move {
        let _held = dropped;
        panic!("as a test would");
    });
    assert!(panicked.await.unwrap_err().is_panic());

    let scratch = server.database().await.unwrap();
    let client = scratch.connect().await.unwrap();
    let left = "select count(*) from pg_database where datname = any ($1)";
    assert_eq!(client.query_one(left, &[&names.as_slice()]).await.unwrap().get::<_, i64>(0), 0);
    let left = "select count(*) from pg_roles where rolname = $1";
    assert_eq!(client.query_one(left, &[&login]).await.unwrap().get::<_, i64>(0), 0);
}

async fn rails(database: &symphony_testkit::test_database::Database) -> i64 {
    let client = database.connect().await.unwrap();
    client.query_one("select count(*) from symphony.payment_rails", &[]).await.unwrap().get(0)
}
