//! A visit to a server: it takes away what it made, and never what somebody else has come to use.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use symphony_outbox::connect::Target;
use symphony_outbox::schema::{Lane, script};
use symphony_proof::kit::postgres::{Binaries, Cluster, Options};
use symphony_proof::kit::scratch::Guest;
use tokio_postgres::Client;

/// A server of its own: roles are counted on all of it.
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
async fn a_guest_takes_the_roles_that_nobody_else_uses() {
    let cluster = server().await;
    let client = session(&cluster, "postgres").await;
    let guest = Guest::arrive(&cluster.url("postgres")).await.unwrap();
    guest.server().database().await.unwrap().close().await.unwrap();
    assert_eq!(roles(&client).await, 7);
    guest.leave().await.unwrap();
    assert_eq!(roles(&client).await, 0);
}

#[tokio::test]
async fn who_installs_during_a_visit_keeps_every_role() {
    let cluster = server().await;
    let client = session(&cluster, "postgres").await;
    let guest = Guest::arrive(&cluster.url("postgres")).await.unwrap();
    guest.server().database().await.unwrap().close().await.unwrap();
    client.batch_execute("create database shop").await.unwrap();
    session(&cluster, "shop").await.batch_execute(&script(&Lane::ALL)).await.unwrap();
    guest.leave().await.unwrap();
    assert_eq!(roles(&client).await, 7, "symphony_auth included, on which nothing depends");
}

#[tokio::test]
async fn who_is_granted_a_role_during_a_visit_keeps_it() {
    let cluster = server().await;
    let client = session(&cluster, "postgres").await;
    let guest = Guest::arrive(&cluster.url("postgres")).await.unwrap();
    guest.server().database().await.unwrap().close().await.unwrap();
    client.batch_execute("create role till login; grant symphony_auth to till").await.unwrap();
    guest.leave().await.unwrap();
    assert_eq!(roles(&client).await, 7);
    let member = "select pg_has_role('till', 'symphony_auth', 'member')";
    assert!(client.query_one(member, &[]).await.unwrap().get::<_, bool>(0));
}

#[tokio::test]
async fn a_second_guest_waits_for_the_first_and_leaves_nothing_either() {
    let cluster = server().await;
    let client = session(&cluster, "postgres").await;
    client.batch_execute("create database shop").await.unwrap();
    let first = Guest::arrive(&cluster.url("postgres")).await.unwrap();
    first.server().database().await.unwrap().close().await.unwrap();
    // By way of another database, where other locks are.
    let url = cluster.url("shop");
    let second = tokio::spawn(async move { Guest::arrive(&url).await.unwrap() });
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    while client.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        assert!(!second.is_finished(), "it did not wait");
    }
    first.leave().await.unwrap();
    let second = second.await.unwrap();
    second.server().database().await.unwrap().close().await.unwrap();
    assert_eq!(roles(&client).await, 7);
    second.leave().await.unwrap();
    assert_eq!(roles(&client).await, 0);
}
