//! A login without Symphony's roles, or with a runtime role alone, cannot keep a relayer from starting.

use symphony_testkit::postgres::{Binaries, Cluster, Options};

use super::{connect, differences, installed, program::symphony, run_check};

/// What a login with CREATE on the database can do: none of it is a difference.
const TENANT: &str = "
    alter default privileges in schema symphony grant select on tables to public;
    alter default privileges grant execute on functions to public;
    alter role tenant set search_path = tenant;
    alter role tenant set synchronous_commit = off;
    grant plain to symphony_executor;
    create schema tenant;
    create type tenant.state as enum ('a');
    create function tenant.turn(tenant.state) returns text language sql as 'select null';
    create cast (tenant.state as text) with function tenant.turn(tenant.state) as implicit;
    create function tenant.peek() returns bigint language plpgsql security definer
      as 'begin return (select count(*) from symphony.payment_outbox_pending); end';
    create table tenant.\"x on symphony.payment_outbox_pending\" (outbox_id uuid);
    create publication tenant for table tenant.\"x on symphony.payment_outbox_pending\"";

/// What a member of a runtime role can do beyond that: at most a warning.
const MEMBER: &str = "
    create schema member;
    create view member.peek as select outbox_id, claimed_by from symphony.payment_outbox_pending;
    create rule away as on insert to member.peek do instead delete from symphony.payment_outbox_pending;
    set role symphony_ingest;
    alter role symphony_ingest set search_path = member;
    alter default privileges grant execute on functions to public;
    reset role";

#[tokio::test]
async fn what_a_login_can_do_does_not_keep_a_relayer_from_starting() {
    let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
    let superuser = installed(&cluster, "shop", &["payment", "event", "metadata"]).await;
    superuser
        .batch_execute(
            "create role tenant login; create role member login; grant symphony_ingest to member;
             create role plain; grant plain to tenant with admin option;
             grant create on database shop to tenant, member",
        )
        .await
        .unwrap();
    let url = |user: &str| format!("postgres://{user}@127.0.0.1:{}/shop", cluster.port());
    connect(&url("tenant")).await.batch_execute(TENANT).await.unwrap();
    let verified = symphony(&url("tenant"), &["verify", "--strict"]).exits(0);
    assert_eq!(differences(&verified), Vec::<String>::new());

    connect(&url("member")).await.batch_execute(MEMBER).await.unwrap();
    let verified = symphony(&url("tenant"), &["verify"]).exits(0);
    assert_eq!(differences(&verified), ["warning: unexpected: setting search_path of role symphony_ingest"]);
    run_check(&cluster, &superuser, "shop").await.exits(0);
}

/// Another application may have a schema with the name of the event lane's schema.
#[tokio::test]
async fn a_schema_of_another_application_is_no_difference() {
    let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
    let superuser = installed(&cluster, "shop", &["payment"]).await;
    superuser
        .batch_execute("create schema m10_recovery; create table m10_recovery.outbox (id int)")
        .await
        .unwrap();
    symphony(&cluster.url("shop"), &["verify", "--strict"]).exits(0);
}
