//! Runs on a shared server drop what they created, and nothing that another session uses.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use symphony_db::connect::Target;
use symphony_db::schema::{Lane, script};
use symphony_testkit::postgres::{Binaries, Cluster, Options};
use symphony_testkit::test_database::SharedServer;
use tokio_postgres::Client;

/// A private server, because the tests count its roles.
async fn server() -> Cluster {
    Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap()
}

async fn session(cluster: &Cluster, database: &str) -> Client {
    Target::parse(&cluster.url(database)).unwrap().connect().await.unwrap()
}

async fn roles(client: &Client) -> i64 {
    let roles = "select count(*) from pg_roles where rolname like 'symphony\\_%'";
    client.query_one(roles, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_run_drops_the_roles_that_no_other_session_uses() {
    let cluster = server().await;
    let client = session(&cluster, "postgres").await;
    let shared = SharedServer::lock(&cluster.url("postgres")).await.unwrap();
    shared.server().database().await.unwrap().close().await.unwrap();
    assert_eq!(roles(&client).await, 7);
    shared.clean_up().await.unwrap();
    assert_eq!(roles(&client).await, 0);
}

#[tokio::test]
async fn an_install_during_a_run_keeps_every_role() {
    let cluster = server().await;
    let client = session(&cluster, "postgres").await;
    let shared = SharedServer::lock(&cluster.url("postgres")).await.unwrap();
    shared.server().database().await.unwrap().close().await.unwrap();
    client.batch_execute("create database shop").await.unwrap();
    session(&cluster, "shop").await.batch_execute(&script(&Lane::ALL)).await.unwrap();
    shared.clean_up().await.unwrap();
    assert_eq!(roles(&client).await, 7, "symphony_auth included, on which nothing depends");
}

#[tokio::test]
async fn a_login_that_is_granted_a_role_during_a_run_keeps_it() {
    let cluster = server().await;
    let client = session(&cluster, "postgres").await;
    let shared = SharedServer::lock(&cluster.url("postgres")).await.unwrap();
    shared.server().database().await.unwrap().close().await.unwrap();
    client.batch_execute("create role till login; grant symphony_auth to till").await.unwrap();
    shared.clean_up().await.unwrap();
    assert_eq!(roles(&client).await, 7);
    let member = "select pg_has_role('till', 'symphony_auth', 'member')";
    assert!(client.query_one(member, &[]).await.unwrap().get::<_, bool>(0));
}

#[tokio::test]
async fn a_second_run_waits_for_the_first_and_leaves_nothing_either() {
    let cluster = server().await;
    let client = session(&cluster, "postgres").await;
    client.batch_execute("create database shop").await.unwrap();
    let first = SharedServer::lock(&cluster.url("postgres")).await.unwrap();
    first.server().database().await.unwrap().close().await.unwrap();
    // Through another database, because advisory locks belong to one database.
    let url = cluster.url("shop");
    let second = tokio::spawn(async move { SharedServer::lock(&url).await.unwrap() });
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    while client.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(!second.is_finished(), "it did not wait");
    }
    first.clean_up().await.unwrap();
    let second = second.await.unwrap();
    second.server().database().await.unwrap().close().await.unwrap();
    assert_eq!(roles(&client).await, 7);
    second.clean_up().await.unwrap();
    assert_eq!(roles(&client).await, 0);
}
