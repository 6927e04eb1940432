//! Every shipped alert fires: the test provokes its condition in running relayers that a real Prometheus scrapes.
//! The same Prometheus must return data for every query of the Grafana dashboard.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use symphony_db::connect::Target;
use symphony_db::listener::{Channel, NotifyListener};
use symphony_db::payment::worker;
use symphony_db::relayers::session_name;
use symphony_db::{BatchSize, WorkerId};
use symphony_testkit::ledger_partitions;
use symphony_testkit::pgbouncer::Pooler;
use symphony_testkit::proxy::{NewConnections, Proxy};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::bank::Bank;
use crate::harness::{Harness, RAIL};
use crate::producers::instruction;
use crate::prometheus::{Prometheus, expressions, read, rules};
use crate::relayer::Settings;

/// An operator has paused it, and a lease on it has expired. A new epoch holds it too.
const PAUSED: &str = "paused";
/// Has no inquiry, and its policy for unknown outcomes is STOP.
const CHEQUE: &str = "cheque";
/// Its bank refuses connections.
const DEAD: &str = "dead";
/// Its bank takes a minute for each payment.
const SLOW: &str = "slow";
/// Its payments get a second terminal row.
const ENDED: &str = "ended";

/// The names of Symphony's metrics in a text.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':')));
    words.filter(|word| word.starts_with("symphony_")).map(str::to_owned).collect()
}

/// Settings of a relayer that serves these rails and runs no repair pass.
fn settings(harness: &Harness, rails: &[&str]) -> Settings {
    let settings =
        harness.settings_for(rails).payment("repair_every", "'0s'").payment("unserved_rails", "'allow'");
    Settings { log_level: "info", ..settings }
}

async fn enqueue(harness: &Harness, rail: &str, count: usize) {
    let mut producer = harness.producer();
    for number in 0..count {
        producer.enqueue(&instruction(rail, number, rail)).await;
    }
}

/// Leaves two rows on a paused rail that are an hour overdue: one is due, the other has an expired lease.
async fn leave_overdue_rows(harness: &Harness) {
    enqueue(harness, PAUSED, 2).await;
    let dead_worker = harness.database.connect_as("symphony_executor").await.unwrap();
    let one = BatchSize::try_from(1).unwrap();
    let claimed =
        worker::claim(&dead_worker, &WorkerId::from("dead"), one, Duration::from_secs(60)).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let operator = harness.database.connect_as("symphony_operator").await.unwrap();
    operator.execute("select symphony.pause_payment_rail($1, 'harness', 'a test')", &[&PAUSED]).await.unwrap();
    harness.expire_leases().await;
    // A trigger protects created_at, so only the superuser can make the rows older.
    let age = "alter table symphony.payment_outbox_pending disable trigger pending_keeps_its_identity;
               update symphony.payment_outbox_pending
               set next_attempt_at = next_attempt_at - interval '1 hour', created_at = created_at - interval '7 hours';
               alter table symphony.payment_outbox_pending enable always trigger pending_keeps_its_identity";
    harness.superuser().await.batch_execute(age).await.unwrap();
}

/// A login that sees the database clock an hour ahead: its search_path has a fake `clock_timestamp` before
/// PostgreSQL's own. It works only through a pooler, because direct sessions pin their search_path.
async fn url_with_a_fast_clock(harness: &Harness, pooler: &Pooler) -> String {
    let url = harness.database.url_as_login(&["symphony_executor"]).await.unwrap();
    let login = url.strip_prefix("postgres://").unwrap().split([':', '@']).next().unwrap().to_owned();
    let fake_clock = format!(
        "create schema fake; grant usage on schema fake to public;
         create function fake.clock_timestamp() returns timestamptz language sql as
           $$ select pg_catalog.clock_timestamp() + interval '1 hour' $$;
         alter role {login} set search_path = fake, pg_catalog"
    );
    harness.superuser().await.batch_execute(&fake_clock).await.unwrap();
    pooler.url_through(&url).unwrap()
}

/// Bypasses the SQL functions: a trigger records each payment of [`ENDED`] as dispatched just before the relayer does.
async fn record_terminal_rows_twice(harness: &Harness) {
    let twice = format!(
        "create function symphony.second_terminal_row() returns trigger language plpgsql as $$
         begin
           insert into symphony.payment_outbox_attempts
           select (jsonb_populate_record(new, jsonb_build_object('attempt_id', gen_random_uuid(), 'attempt_no', 20))).*;
           return new;
         end $$;
         create trigger second_terminal_row before insert on symphony.payment_outbox_attempts
           for each row when (pg_trigger_depth() = 0 and new.rail_type = '{ENDED}' and new.state = 'DISPATCHED')
           execute function symphony.second_terminal_row()"
    );
    harness.superuser().await.batch_execute(&twice).await.unwrap();
}

/// Leaves a producer with an open transaction, and another that waits for its participant.
async fn wait_for_a_hung_producer(harness: &Harness) -> (Client, JoinHandle<()>) {
    let hung = harness.database.connect_as("symphony_ingest").await.unwrap();
    let waiting = harness.database.connect_as("symphony_ingest").await.unwrap();
    let enqueue = |key: &str| {
        format!("select symphony.enqueue_payment_outbox('{key}', 'hung', '{key}', '{PAUSED}', '{{}}')")
    };
    hung.batch_execute(&format!("begin; {}", enqueue("hung"))).await.unwrap();
    let wait = enqueue("waiting");
    // It waits until the end of the test, which ends its session.
    let wait = tokio::spawn(async move { drop(waiting.batch_execute(&wait).await) });
    (hung, wait)
}

/// Leaves a partition of the ledger that should have been archived weeks ago, in a ledger without rows.
async fn skip_an_archive(harness: &Harness) {
    let superuser = harness.superuser().await;
    ledger_partitions::age(&superuser, 4).await.unwrap();
    let old_row = "insert into symphony.payment_outbox_attempts
                     (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state,
                      claimed_at, worker_id, created_at)
                   select symphony.uuidv7_lower_bound(now() - interval '60 days'), 'old', 'old', 1, 'old', 'old', '{}', 1, 'RETRYABLE',
                          now() - interval '60 days', 'old', now() - interval '60 days';
                   select symphony.set_retention('payment_ledger', 1, 'test', 'alerts')";
    superuser.batch_execute(old_row).await.unwrap();
}

/// Leaves one partition ahead, as three weeks without an extension do.
async fn drop_partitions_ahead(harness: &Harness) {
    let drop = "do $$ declare v_name text; begin
                  for v_name in select partition_name from symphony.payment_ledger_partitions()
                                where starts_at > now() order by starts_at desc limit 3 loop
                    execute format('drop table symphony.%I', v_name);
                  end loop;
                end $$";
    harness.superuser().await.batch_execute(drop).await.unwrap();
}

/// Leaves what a worker reports about a payment that the database does not know.
async fn orphan_an_outcome(harness: &Harness) {
    let executor = harness.database.connect_as("symphony_executor").await.unwrap();
    let report = "select symphony.record_payment_orphan('UNKNOWN_OUTBOX', 'lost', gen_random_uuid(), gen_random_uuid(), 'DISPATCHED')";
    executor.execute(report, &[]).await.unwrap();
}

/// Leaves a payment of the paused rail that the bank accepted two hours ago, and a callback about a key that no payment has.
async fn await_and_refuse_confirmations(harness: &Harness) {
    let awaiting = "insert into symphony.payment_awaiting_confirmation (outbox_id, rail_type, accepted_at)
                    values (gen_random_uuid(), $1, now() - interval '2 hours')";
    harness.superuser().await.execute(awaiting, &[&PAUSED]).await.unwrap();
    let executor = harness.database.connect_as("symphony_executor").await.unwrap();
    let confirm = "select symphony.confirm_payment_outbox($1, 'no such key', 'EXECUTED', 'a message', 'harness')";
    executor.execute(confirm, &[&PAUSED]).await.unwrap();
}

/// Waits until each of these alerts has fired with this label. They need not fire together, because some resolve.
async fn wait_until_fired(prometheus: &Prometheus, alerts: &[(&str, &str, &str)]) {
    let mut missing = alerts.to_vec();
    let all = until("every alert has fired", 2 * DEFAULT_TIMEOUT, async || {
        let firing = prometheus.query("ALERTS{alertstate=\"firing\"}").await;
        let fires = |(alert, label, value): &(&str, &str, &str)| {
            firing.iter().any(|one| one["metric"]["alertname"] == *alert && one["metric"][*label] == *value)
        };
        missing.retain(|alert| !fires(alert));
        missing.is_empty()
    });
    let all = all.await;
    assert!(all.is_ok(), "never fired: {missing:?}");
}

#[tokio::test]
async fn every_alert_fires_when_its_condition_is_provoked_and_every_query_of_the_dashboard_has_an_answer() {
    let mut harness = Harness::start().await;
    skip_an_archive(&harness).await;
    for rail in [DEAD, SLOW, ENDED] {
        harness.set_rail(rail, &json!({})).await;
    }
    harness.set_rail(PAUSED, &json!({"on_epoch_change": "HOLD"})).await;
    harness.set_rail(CHEQUE, &json!({"on_unknown": "STOP", "ordered": true, "on_failure": "HOLD"})).await;
    harness.set_rail(RAIL, &json!({"backoff_base_seconds": 2, "backoff_cap_seconds": 2})).await;
    leave_overdue_rows(&harness).await;

    // A relayer whose bank is always busy and whose listener will be cut.
    let listen_proxy = Proxy::in_front_of(&harness.url).unwrap();
    let mut busy = settings(&harness, &[RAIL, CHEQUE, ENDED]);
    busy.listen_url = listen_proxy.url().to_owned();
    busy.extra = "[payment.breaker]\nfailures = 1000\n".to_owned();
    let busy = harness.start_relayer(&busy.without_inquiry()).await;
    // A relayer whose bank is down and whose database clock is an hour ahead.
    let mut isolated = settings(&harness, &[DEAD]);
    let pooler = Pooler::in_front_of(&harness.database.url(), 8).await.unwrap();
    isolated.url = url_with_a_fast_clock(&harness, &pooler).await;
    isolated.listen_url = harness.url.clone();
    isolated.extra = "[payment.breaker]\nfailures = 1\nopen_for = '1s'\nmax_open_for = '60s'\n".to_owned();
    let address = harness.bank.address().to_string();
    isolated.rails = isolated
        .rails
        .iter()
        .map(|(rail, section)| (rail.clone(), section.replace(&address, "127.0.0.1:1")))
        .collect();
    let isolated = harness.start_relayer(&isolated).await;
    // A relayer that loses its database during dispatches.
    let database_proxy = Proxy::in_front_of(&harness.url).unwrap();
    let bank = std::mem::replace(&mut harness.bank, Bank::start(&["--fault", "latency=60s"]).await);
    let mut cut = settings(&harness, &[SLOW]);
    cut.url = database_proxy.url().to_owned();
    let cut = harness.start_relayer(&cut).await;
    let _slow = std::mem::replace(&mut harness.bank, bank);

    // Another relayer with the name of the isolated one.
    let twin = Target::parse(&harness.url).unwrap().with_session_name(&session_name(&isolated.worker));
    let _twin = NotifyListener::connect(&twin, Channel::PAYMENT).await.unwrap();
    let (_hung, _waiting) = wait_for_a_hung_producer(&harness).await;

    let jobs = [("symphony", &[busy.endpoints(), isolated.endpoints()][..]), ("symphony-cut", &[cut.endpoints()])];
    let prometheus = Prometheus::scraping(&jobs).await;
    // An increase needs a sample from before it.
    let before = [
        ("symphony_dlq_depth == 0", 18),
        ("symphony_database_clock_steps_total == 0", 3),
        ("symphony_terminal_backstop_total == 0", 3),
        ("symphony_epoch == 1", 3),
        ("symphony_refused_confirmations_total == 0", 3),
    ];
    for (query, count) in before {
        let condition = async || prometheus.query(query).await.len() == count;
        until(format!("{query} was seen"), DEFAULT_TIMEOUT, condition).await.unwrap();
    }
    // Only the rows of the paused rail are pending: no other rail is affected.
    let operator = harness.database.connect_as("symphony_operator").await.unwrap();
    operator.execute("select symphony.open_epoch('harness', 'a test')", &[]).await.unwrap();

    let key = |rail: &str| instruction(rail, 0, rail).idempotency_key;
    let faults =
        json!({"busy": "1", "retry_after": "1s", "for_key": {(key(CHEQUE)): ["cut_after"], (key(ENDED)): ["ok"]}});
    enqueue(&harness, SLOW, 2).await;
    harness.wait_for_leases(3).await;
    let set_clock = "create or replace function fake.clock_timestamp() returns timestamptz language sql as
                     $$ select pg_catalog.clock_timestamp() + interval '2 hours' $$";
    harness.superuser().await.batch_execute(set_clock).await.unwrap();
    database_proxy.cut(NewConnections::Refuse).await;
    listen_proxy.cut(NewConnections::Refuse).await;
    harness.bank.set_faults(&faults).await;
    record_terminal_rows_twice(&harness).await;
    drop_partitions_ahead(&harness).await;
    orphan_an_outcome(&harness).await;
    await_and_refuse_confirmations(&harness).await;
    for (rail, count) in [(CHEQUE, 1), (ENDED, 1), (DEAD, 3), (RAIL, 40)] {
        enqueue(&harness, rail, count).await;
    }

    let (busy_instance, isolated_instance) = (busy.endpoints().to_string(), isolated.endpoints().to_string());
    let provoked = [
        ("SymphonyGaugesMissing", "job", "symphony-cut"),
        ("SymphonyDatabaseCallsFailing", "job", "symphony-cut"),
        ("SymphonyClaimsFailing", "job", "symphony-cut"),
        ("SymphonyListenerDown", "instance", &busy_instance),
        ("SymphonyRepairNotRunning", "job", "symphony"),
        ("SymphonyWorkerNameShared", "instance", &isolated_instance),
        ("SymphonyLockWaitTooLong", "job", "symphony"),
        ("SymphonyDatabaseClockSkew", "instance", &isolated_instance),
        ("SymphonyDatabaseClockStepped", "instance", &isolated_instance),
        ("SymphonyLedgerPartitionsMissing", "job", "symphony"),
        ("SymphonyLedgerArchiveOverdue", "job", "symphony"),
        ("SymphonyEpochOpened", "job", "symphony"),
        ("SymphonyOrphanedOutcome", "job", "symphony"),
        ("SymphonyRailHeld", "rail", PAUSED),
        ("SymphonyStreamHeld", "rail", CHEQUE),
        ("SymphonyOldestDueRowTooOld", "rail", PAUSED),
        ("SymphonyOldestDueRowCritical", "rail", PAUSED),
        ("SymphonyOldestPendingRowTooOld", "rail", PAUSED),
        ("SymphonyLeasesStuck", "rail", PAUSED),
        ("SymphonyRailUnserved", "rail", PAUSED),
        ("SymphonyRetriesRise", "rail", RAIL),
        ("SymphonyBreakerOpen", "rail", DEAD),
        ("SymphonyDeadLettersGrow", "rail", CHEQUE),
        ("SymphonyUnknownOutcomesWaiting", "rail", CHEQUE),
        ("SymphonyConfirmationOverdue", "rail", PAUSED),
        ("SymphonyConfirmationRefused", "job", "symphony"),
        ("SymphonyDuplicateTerminalWrite", "job", "symphony"),
    ];
    let after_kills =
        [("SymphonyRelayerDown", "instance", busy_instance.as_str()), ("SymphonyNoRelayer", "job", "symphony")];
    let listed: BTreeSet<_> = provoked.iter().chain(&after_kills).map(|(alert, ..)| (*alert).to_owned()).collect();
    assert_eq!(listed, prometheus.alerts().await, "every alert is provoked");
    wait_until_fired(&prometheus, &provoked).await;
    let ahead = prometheus.query("symphony_database_clock_offset_seconds > 3000").await;
    assert!(ahead.iter().any(|one| one["metric"]["instance"] == *isolated_instance), "{ahead:?}");

    for query in expressions() {
        until(format!("{query} returns data"), DEFAULT_TIMEOUT, async || {
            !prometheus.query(&query).await.is_empty()
        })
        .await
        .unwrap();
    }
    let seen = prometheus.metrics().await;
    let used = metrics_in(&format!("{}\n{}", rules(), read("ops/grafana/symphony.json")));
    assert_eq!(
        used.difference(&seen).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "metrics that no relayer exposes"
    );

    busy.program.kill9().await.unwrap();
    wait_until_fired(&prometheus, &after_kills[..1]).await;
    isolated.program.kill9().await.unwrap();
    wait_until_fired(&prometheus, &after_kills[1..]).await;
}
