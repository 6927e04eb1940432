//! A real pooler in front of a real server.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::*;
use crate::postgres::{Binaries, Cluster, Options};
use crate::test_database::Server;

#[tokio::test]
async fn a_session_of_the_server_is_shared_between_transactions_of_many_clients() {
    let database = Server::from_env().await.unwrap().empty_database().await.unwrap();
    let pooler = Pooler::in_front_of(&database.url(), 1).await.unwrap();
    let url = pooler.url_through(&database.url()).unwrap();
    let (mut one, other) = (connect(&url).await, connect(&url).await);
    assert_eq!(backend(&one).await, backend(&other).await);

    // While a transaction is open, no other client gets its session.
    let transaction = one.transaction().await.unwrap();
    transaction.batch_execute("select 1").await.unwrap();
    let mut waiting = Box::pin(backend(&other));
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut waiting).await.is_err());
    transaction.commit().await.unwrap();
    waiting.await;
}

#[tokio::test]
async fn a_query_in_one_round_trip_works_and_a_prepared_statement_does_not() {
    let database = Server::from_env().await.unwrap().empty_database().await.unwrap();
    let pooler = Pooler::in_front_of(&database.url(), 2).await.unwrap();
    let url = pooler.url_through(&database.url()).unwrap();
    let (client, mut other) = (connect(&url).await, connect(&url).await);
    let rows = client.query_typed("select $1 + 1", &[(&41, Type::INT4)]).await.unwrap();
    assert_eq!(rows[0].get::<_, i32>(0), 42);

    let prepared = client.prepare("select 1").await.unwrap();
    // Another client now holds the session on which it was prepared: the pooler reuses the last used idle session
    // first.
    let busy = other.transaction().await.unwrap();
    busy.batch_execute("select 1").await.unwrap();
    let refusal = client.query(&prepared, &[]).await.unwrap_err();
    assert_eq!(refusal.code().unwrap().code(), "26000");
}

#[tokio::test]
async fn it_accepts_the_logins_of_the_server_and_no_others() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let pooler = Pooler::in_front_of(&database.url(), 2).await.unwrap();
    let login = database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let client = connect(&pooler.url_through(&login).unwrap()).await;
    client.batch_execute("select from symphony.payment_outbox_pending").await.unwrap();
    let refusal = client.batch_execute("delete from symphony.payment_outbox_pending").await.unwrap_err();
    assert_eq!(refusal.code().unwrap().code(), "42501");

    let outsider = login.replace("symphony_login_", "symphony_unknown_");
    let url = pooler.url_through(&outsider).unwrap();
    assert!(tokio_postgres::connect(&url, NoTls).await.is_err());
}

#[tokio::test]
async fn it_reconnects_to_a_server_that_was_killed_and_restarted() {
    let mut cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
    let pooler = Pooler::in_front_of(&cluster.url("postgres"), 2).await.unwrap();
    let url = pooler.url_through(&cluster.url("postgres")).unwrap();
    backend(&connect(&url).await).await;
    cluster.kill9().await;
    cluster.restart().await.unwrap();
    let works = async || {
        let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await else { return false };
        tokio::spawn(connection);
        client.batch_execute("select 1").await.is_ok()
    };
    wait::until("the pooler has reconnected to the server", wait::DEFAULT_TIMEOUT, works).await.unwrap();
}

#[tokio::test]
async fn dropping_the_pooler_ends_it() {
    let pooler = Pooler::in_front_of("postgres://127.0.0.1:1/nowhere", 1).await.unwrap();
    let port = pooler.port();
    drop(pooler);
    assert!(tokio::net::TcpStream::connect((HOST, port)).await.is_err());
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The pid of the server process of this client, read in one round trip.
async fn backend(client: &Client) -> i32 {
    client.query_typed("select pg_backend_pid()", &[]).await.unwrap()[0].get(0)
}
