//! The database was promoted or restored: the relayer opens an epoch, says so, and inquires before it sends. It notices what its server
//! does not show, and refuses an old primary.

use serde_json::{Value, json};
use symphony_testkit::epoch::{change_server, forget_later_epochs};
use symphony_testkit::postgres::{Binaries, Cluster, Options};
use symphony_testkit::proxy::{NewConnections, Proxy};
use symphony_testkit::test_database::Server;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::{Harness, RAIL};
use crate::relayer::USAGE_ERROR;

#[tokio::test]
async fn a_relayer_that_opens_an_epoch_logs_it_and_inquires_about_what_was_pending() {
    const PENDING: usize = 5;
    let harness = Harness::start().await;
    harness.enqueue("pending", PENDING).await;
    change_server(&harness.superuser().await).await.unwrap();
    let relayer = harness.start_relayer(&harness.settings()).await;
    let line = relayer.wait_for_log("EPOCH_OPENED").await;
    let line: Value = serde_json::from_str(&line).unwrap();
    let found = (&line["level"], &line["event"], &line["lane"], &line["epoch"], &line["previous_epoch"]);
    assert_eq!(
        found,
        (&json!("ERROR"), &json!("EPOCH_OPENED"), &json!("payment"), &json!(2), &json!(1)),
        "{line}"
    );
    assert!(line["reason"].as_str().unwrap().contains("timeline"), "{line}");
    until("the gauge is of the new epoch", DEFAULT_TIMEOUT, async || {
        relayer.metric_sum("symphony_epoch").await == 2
    })
    .await
    .unwrap();

    let report = harness.reconcile().await;
    assert_eq!(report.counts.dispatched, PENDING);
    let inquiries = harness.bank.requests().await.len() - harness.bank.payments().await;
    assert_eq!(inquiries, PENDING, "each was inquired about once before it was sent");
    harness.enqueue("later", PENDING).await;
    harness.reconcile().await;
    let later = harness.bank.requests().await.len() - harness.bank.payments().await;
    assert_eq!(later, inquiries, "payments of the new epoch are sent without an inquiry");
    relayer.stop().await;
}

#[tokio::test]
async fn a_relayer_that_misses_its_last_commit_opens_an_epoch_before_it_claims() {
    let harness = Harness::start().await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    let mut settings = harness.settings();
    settings.url = network.url().to_owned();
    let relayer = harness.start_relayer(&settings).await;
    harness.bank.set_faults(&json!({"latency": "60s"})).await;
    harness.enqueue("lost", 1).await;
    // The request of the lease that is lost stays in the bank: handled, it would be one that the ledger does not explain.
    harness.bank.wait_for_received(1).await;
    // As a copy of the files from before the claim, started without recovery: the server looks the same. The relayer is
    // disconnected meanwhile, so it cannot claim before it has a session that is checked.
    network.cut(NewConnections::Refuse).await;
    let superuser = harness.superuser().await;
    let lose = "update symphony.payment_outbox_pending
                set claimed_by = null, claimed_at = null, lease_token = null, lease_expires_at = null, claimed_epoch = null,
                    claimed_endpoint = null";
    superuser.batch_execute(lose).await.unwrap();
    harness.bank.set_faults(&json!({"latency": "0ms"})).await;
    network.accept().await.unwrap();
    let line = relayer.wait_for_log("EPOCH_OPENED").await;
    let line: Value = serde_json::from_str(&line).unwrap();
    assert!(line["reason"].as_str().unwrap().contains("does not find a commit"), "{line}");
    let report = harness.reconcile().await;
    assert_eq!(report.counts.dispatched, 1);
    let inquiries = harness.bank.requests().await.len() - harness.bank.payments().await;
    assert!(inquiries > 0, "it was not sent again without an inquiry");
    relayer.stop().await;
}

#[tokio::test]
async fn a_relayer_refuses_a_server_whose_epoch_is_lower_than_one_it_has_seen() {
    let harness = Harness::start().await;
    let open = async |at_least: i64| {
        let operator = harness.database.connect_as("symphony_operator").await.unwrap();
        operator.execute("select symphony.open_epoch('harness', 'a test', $1)", &[&at_least]).await.unwrap();
    };
    open(5).await;
    let relayer = harness.start_relayer(&harness.settings()).await;
    harness.enqueue("before", 1).await;
    harness.reconcile().await;
    // The old primary: it has never heard of epoch 5.
    forget_later_epochs(&harness.superuser().await).await.unwrap();
    harness.database.terminate_sessions().await.unwrap();
    harness.enqueue("fenced", 1).await;
    relayer.wait_for_log("it may be an old primary").await;
    assert_eq!(harness.pending_count().await, 1);
    assert_eq!(harness.bank.payments().await, 1, "nothing was sent from the old primary");
    open(6).await;
    harness.wait_until_drained().await;
    relayer.stop().await;
}

#[tokio::test]
async fn a_claim_whose_wait_for_the_standby_was_cancelled_sends_nothing() {
    let binaries = Binaries::find().unwrap();
    // Without durable, no commit waits for anything.
    let options = Options { durable: true, ..Options::default() };
    let cluster = Cluster::start(&binaries, options).await.unwrap();
    let database = Server::at(&cluster.url("postgres")).unwrap().database().await.unwrap();
    let harness = Harness::on_database(database).await;
    harness.enqueue("unreplicated", 3).await;
    let superuser = harness.superuser().await;
    superuser.batch_execute("set synchronous_commit = local").await.unwrap();
    for statement in ["alter system set synchronous_standby_names = 'absent'", "select pg_reload_conf()"] {
        superuser.batch_execute(statement).await.unwrap();
    }
    let settings = harness.settings().payment("lease", "'30s'").payment("call_timeout", "'20s'");
    let relayer = harness.start_relayer(&settings).await;
    let cancel = "select pg_cancel_backend(pid) from pg_stat_activity
                  where wait_event = 'SyncRep' and query like '%claim_outbox_batch%'";
    until("the wait of a claim is cancelled", DEFAULT_TIMEOUT, async || {
        !superuser.query(cancel, &[]).await.unwrap().is_empty()
    })
    .await
    .unwrap();
    relayer.wait_for_log("CLAIM_NOT_REPLICATED").await;
    assert_eq!(harness.bank.payments().await, 0, "its payments are not sent");
    for statement in ["alter system reset synchronous_standby_names", "select pg_reload_conf()"] {
        superuser.batch_execute(statement).await.unwrap();
    }
    let report = harness.reconcile().await;
    assert_eq!(report.counts.dispatched, 3);
    relayer.stop().await;
}

#[tokio::test]
async fn claims_that_wait_for_an_absent_standby_use_up_no_attempt() {
    let binaries = Binaries::find().unwrap();
    let options = Options { durable: true, ..Options::default() };
    let cluster = Cluster::start(&binaries, options).await.unwrap();
    let database = Server::at(&cluster.url("postgres")).unwrap().database().await.unwrap();
    let harness = Harness::on_database(database).await;
    harness.set_rail(RAIL, &json!({"max_attempts": 2})).await;
    harness.enqueue("waiting", 3).await;
    let superuser = harness.superuser().await;
    superuser.batch_execute("set synchronous_commit = local").await.unwrap();
    for statement in ["alter system set synchronous_standby_names = 'absent'", "select pg_reload_conf()"] {
        superuser.batch_execute(statement).await.unwrap();
    }
    // Its lease of 4 s ends while a claim waits, if the relayer does not end the wait.
    let relayer = harness.start_relayer(&harness.settings()).await;
    let waited = until("as many claims have failed as would use up all attempts", DEFAULT_TIMEOUT, async || {
        relayer.log_count("CLAIM_NOT_REPLICATED").await >= 3
    })
    .await;
    let attempts = harness.query_number("select count(*) from symphony.payment_outbox_attempts").await;
    // Before anything is asserted: the removal of the database would wait for the standby too.
    for statement in ["alter system reset synchronous_standby_names", "select pg_reload_conf()"] {
        superuser.batch_execute(statement).await.unwrap();
    }
    waited.unwrap();
    assert_eq!((attempts, harness.bank.requests().await.len() > 3), (0, false));
    let report = harness.reconcile().await;
    assert_eq!(report.counts.dispatched, 3);
    let first =
        "select count(*) from symphony.payment_outbox_attempts where attempt_no = 1 and state = 'DISPATCHED'";
    assert_eq!(harness.query_number(first).await, 3, "each was dispatched by its first attempt");
    relayer.stop().await;
}

/// Replaces the database by its copy, as a restore does in which the server looks the same.
async fn restore(harness: &Harness, copy: &str) {
    let (name, superuser) =
        (harness.database.name(), harness.target.database("postgres").connect().await.unwrap());
    harness.database.terminate_sessions().await.unwrap();
    for statement in
        [format!("drop database {name} with (force)"), format!("alter database {copy} rename to {name}")]
    {
        superuser.batch_execute(&statement).await.unwrap();
    }
}

#[tokio::test]
async fn a_relayer_with_a_state_file_that_is_restarted_with_a_restored_database_opens_an_epoch() {
    const PENDING: usize = 3;
    let harness = Harness::start().await;
    harness.enqueue("restored", PENDING).await;
    let (name, copy) = (harness.database.name().to_owned(), format!("{}_copy", harness.database.name()));
    harness.database.terminate_sessions().await.unwrap();
    let elsewhere = harness.target.database("postgres").connect().await.unwrap();
    elsewhere.batch_execute(&format!("create database {copy} template {name}")).await.unwrap();

    let file = harness.folder.path().join("state.json");
    let mut settings = harness.settings().payment("state_file", &format!("'{}'", file.display()));
    settings.worker = "worker-1".to_owned();
    let relayer = harness.start_relayer(&settings).await;
    harness.wait_until_drained().await;
    relayer.stop().await;
    assert_eq!(harness.bank.payments().await, PENDING);

    restore(&harness, &copy).await;
    assert_eq!(harness.pending_count().await, i64::try_from(PENDING).unwrap());
    let relayer = harness.start_relayer(&settings).await;
    let line = relayer.wait_for_log("EPOCH_OPENED").await;
    assert!(line.contains("does not find a commit"), "{line}");
    harness.wait_until_drained().await;
    let inquiries = harness.bank.requests().await.len() - harness.bank.payments().await;
    assert_eq!(inquiries, PENDING, "each was inquired about, and none was sent again");
    relayer.stop().await;

    // The file is of this worker, and whole.
    settings.worker = "worker-2".to_owned();
    settings.refuses_to_start(harness.folder.path(), USAGE_ERROR, &["is of the worker \"worker-1\""]).await;
    settings.worker = String::new();
    settings.refuses_to_start(harness.folder.path(), USAGE_ERROR, &["set relayer.worker"]).await;
    settings.worker = "worker-1".to_owned();
    std::fs::write(&file, "{").unwrap();
    settings.refuses_to_start(harness.folder.path(), USAGE_ERROR, &["damaged", "symphony recover open"]).await;
}

#[tokio::test]
async fn run_check_warns_that_a_failover_may_lose_commits() {
    let harness = Harness::start().await;
    let check = harness.settings().launch(harness.folder.path()).args(["--check"]).start().unwrap();
    assert_eq!(check.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", check.tail());
    assert!(check.tail().contains("NO_SYNCHRONOUS_STANDBY"), "{}", check.tail());
    assert!(!check.tail().contains("EPOCH_OF_ANOTHER_SERVER"), "{}", check.tail());
}

#[tokio::test]
async fn run_check_warns_of_a_restored_or_promoted_server_until_an_epoch_is_opened() {
    let harness = Harness::start().await;
    change_server(&harness.superuser().await).await.unwrap();
    let check = async || {
        let check = harness.settings().launch(harness.folder.path()).args(["--check"]).start().unwrap();
        assert_eq!(check.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", check.tail());
        check.tail().contains("EPOCH_OF_ANOTHER_SERVER")
    };
    assert!(check().await);
    let operator = harness.database.connect_as("symphony_operator").await.unwrap();
    operator.execute("select symphony.open_epoch('harness', 'a test')", &[]).await.unwrap();
    assert!(!check().await);
}
