//! The procedures of docs/restore.md on real servers, step by step. Afterwards what was pending is of unknown outcome, and
//! no number is given out twice.

use std::process::Command;

use symphony_testkit::postgres::{Cluster, Options};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio_postgres::Client;

use super::restore_and_upgrade::{
    has_no_drift, oldest_and_newest, opens_an_epoch, run_with_input, start, write_output,
};
use super::{connect, installed, program::symphony};

/// What a producer is given: a sequence number and an event id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    sequence_id: i64,
    event_id: i64,
}

impl Given {
    /// Whether both numbers are above those that were given out before.
    fn is_above(self, other: Self) -> bool {
        self.sequence_id > other.sequence_id && self.event_id > other.event_id
    }
}

/// Enqueues a payment under this key, and publishes an event.
async fn produce(client: &Client, key: &str) -> Given {
    let enqueue = "select sequence_id from symphony.enqueue_payment_outbox($1, 'acme', $1, 'sepa', '{}')";
    let publish = "select m10_recovery.publish_outbox('order', $1, 'Placed', '{}')";
    let sequence_id = client.query_one(enqueue, &[&key]).await.unwrap().get(0);
    Given { sequence_id, event_id: client.query_one(publish, &[&key]).await.unwrap().get(0) }
}

/// The keys that a claim returns, and whether their outcome is unknown.
async fn claim(client: &Client) -> Vec<(String, bool)> {
    let claim =
        "select idempotency_key, outcome_unknown from symphony.claim_outbox_batch(10, 'worker', 60) order by 1";
    client.query(claim, &[]).await.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// A server with Symphony, a rail, and the payment `kept`.
async fn shop(options: Options) -> (Cluster, Client, Given) {
    let [oldest, _] = oldest_and_newest();
    let cluster = Cluster::start(&oldest, options).await.unwrap();
    let client = installed(&cluster, "shop", &["payment", "event", "metadata"]).await;
    symphony(&cluster.url("shop"), &["rail", "add", "sepa", "--actor", "a", "--reason", "b"]).exits(0);
    let given = produce(&client, "kept").await;
    (cluster, client, given)
}

/// After the procedure: what was pending is of unknown outcome, new payments are not, and numbers go on above.
async fn goes_on(cluster: &Cluster, highest: Given) {
    let client = connect(&cluster.url("shop")).await;
    let given = produce(&client, "new").await;
    assert!(given.is_above(highest), "{given:?} is not above {highest:?}");
    let (kept, new) = (("kept".to_owned(), true), ("new".to_owned(), false));
    assert_eq!(claim(&client).await, [kept, new]);
}

fn settings(settings: &[(&str, &str)]) -> Options {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Options { settings, ..Options::default() }
}

#[tokio::test]
async fn a_base_backup_that_is_recovered_to_a_point_in_time_sends_nothing_unasked_and_reuses_no_number() {
    let (cluster, client, _) = shop(settings(&[("archive_mode", "on"), ("wal_level", "replica")])).await;
    cluster.archive_wal().await.unwrap();
    let mut restored = cluster.back_up().await.unwrap();
    let archive = cluster.create_restore_point("noon").await.unwrap();
    assert_eq!(claim(&client).await, [("kept".to_owned(), false)], "this claim is forgotten");
    let highest = produce(&client, "forgotten").await;

    restored.recover(&archive, "noon").await.unwrap();
    opens_an_epoch(&restored);
    goes_on(&restored, highest).await;
}

/// Restores the plain dump of a database into a new server that has the roles, as this role.
async fn restored_as(role: Option<&str>, dump_options: &[&str], from: &Cluster) -> Cluster {
    let [_, newest] = oldest_and_newest();
    let to = start(&newest).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop");
    let mut command = Command::new(newest.program("pg_dump"));
    command.args(dump_options).arg("--dbname").arg(from.url("shop"));
    write_output(command, &file);

    let admin = connect(&to.url("postgres")).await;
    admin.batch_execute("create database shop").await.unwrap();
    symphony(&to.url("postgres"), &["install", "--roles-only"]).exits(0);
    let mut restore = Command::new(newest.program("psql"));
    restore.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]).arg(to.url("shop"));
    if let Some(role) = role {
        admin.batch_execute(&format!("grant create on database shop to {role}")).await.unwrap();
        restore.env("PGOPTIONS", format!("-c role={role}"));
    }
    run_with_input(restore, &file);
    if let Some(role) = role {
        admin.batch_execute(&format!("revoke create on database shop from {role}")).await.unwrap();
        symphony(&to.url("shop"), &["install"]).exits(0);
    }
    to
}

#[tokio::test]
async fn a_dump_is_restored_on_a_server_that_has_the_roles_from_install_alone() {
    let (cluster, _client, highest) = shop(Options::default()).await;
    let to = restored_as(None, &[], &cluster).await;
    has_no_drift(&to, "restored").await;
    goes_on(&to, highest).await;
}

#[tokio::test]
async fn a_dump_without_owners_and_rights_gets_both_from_a_restore_as_the_owner_and_an_install() {
    let (cluster, _client, highest) = shop(Options::default()).await;
    let to = restored_as(Some("symphony_control"), &["--no-owner", "--no-privileges"], &cluster).await;
    has_no_drift(&to, "restored without owners").await;
    goes_on(&to, highest).await;
}

#[tokio::test]
async fn a_dump_that_was_restored_without_roles_is_refused_with_what_to_do() {
    let (cluster, _client, _) = shop(Options::default()).await;
    let [oldest, _] = oldest_and_newest();
    let (to, folder) = (start(&oldest).await, tempfile::tempdir().unwrap());
    let file = folder.path().join("shop");
    let mut command = Command::new(oldest.program("pg_dump"));
    command.arg("--dbname").arg(cluster.url("shop"));
    write_output(command, &file);
    connect(&to.url("postgres")).await.batch_execute("create database shop").await.unwrap();
    let mut restore = Command::new(oldest.program("psql"));
    restore.args(["--no-psqlrc", "--quiet"]).arg(to.url("shop"));
    run_with_input(restore, &file);
    let refused = symphony(&to.url("shop"), &["install"]).exits(3);
    assert!(refused.stderr.contains("symphony install --roles-only"), "{}", refused.all());
}

#[tokio::test]
async fn an_upgraded_server_sends_nothing_unasked_and_reuses_no_number() {
    let (cluster, client, highest) = shop(Options::default()).await;
    drop(client);
    let [_, newest] = oldest_and_newest();
    let upgraded = cluster.upgrade(&newest).await.unwrap();
    opens_an_epoch(&upgraded);
    goes_on(&upgraded, highest).await;
}

#[tokio::test]
async fn a_logical_copy_is_reported_until_an_epoch_is_opened_and_then_reuses_no_number() {
    let (source, client, highest) = shop(settings(&[("wal_level", "logical")])).await;
    client.batch_execute("create publication cut_over for tables in schema symphony, m10_recovery").await.unwrap();
    let [_, newest] = oldest_and_newest();
    let (target, folder) = (start(&newest).await, tempfile::tempdir().unwrap());
    symphony(&target.url("postgres"), &["install", "--roles-only"]).exits(0);
    connect(&target.url("postgres")).await.batch_execute("create database shop").await.unwrap();
    let file = folder.path().join("schema");
    let mut dump = Command::new(newest.program("pg_dump"));
    dump.args(["--schema-only", "--no-publications", "--dbname"]).arg(source.url("shop"));
    write_output(dump, &file);
    let mut restore = Command::new(newest.program("psql"));
    restore.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]).arg(target.url("shop"));
    run_with_input(restore, &file);

    // Producers and relayers are stopped: the copy is of a database at rest.
    let copy = connect(&target.url("shop")).await;
    let subscribe =
        format!("create subscription cut_over connection '{}' publication cut_over", source.url("shop"));
    copy.batch_execute(&subscribe).await.unwrap();
    let open = "select count(*) from pg_subscription_rel where srsubstate <> 'r'";
    until("every table is copied", DEFAULT_TIMEOUT, async || {
        copy.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0
    })
    .await
    .unwrap();
    copy.batch_execute("drop subscription cut_over").await.unwrap();
    client.batch_execute("drop publication cut_over").await.unwrap();

    // The sequence was not copied, so this is what fails without the next step.
    let publish = "select m10_recovery.publish_outbox('order', '1', 'Placed', '{}')";
    assert!(copy.query_one(publish, &[]).await.is_err(), "its id was given out before");
    has_no_drift(&target, "copied").await;
    goes_on(&target, highest).await;
}
