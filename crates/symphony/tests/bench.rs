//! `symphony bench`: each scenario with few rows. Every enqueued row is found, and other rows are never touched.
//! The deliver scenario runs with a real bank and real brokers.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod program;

use std::process::Command;

use program::{Ran, symphony};
use serde_json::Value;
#[cfg(feature = "kafka")]
use symphony_testkit::process::Program;
use symphony_testkit::test_database::{Database, Server};
#[cfg(feature = "kafka")]
use symphony_testkit::wait::DEFAULT_TIMEOUT;

/// Sizes for a run of less than a second.
const TINY: [&str; 9] = ["--count", "30", "--batch", "7", "--clients", "2", "--participants", "5", "--json"];

async fn scratch() -> Database {
    Server::from_env().await.unwrap().database().await.unwrap()
}

/// Runs it with the tiny sizes in a database.
fn bench(database: &Database, arguments: &[&str]) -> Ran {
    symphony(&database.url(), &[&["bench"], arguments, &TINY].concat())
}

fn measurements(ran: &Ran) -> Vec<Value> {
    ran.json()["measurements"].as_array().unwrap().clone()
}

async fn count(database: &Database, question: &str) -> i64 {
    database.connect().await.unwrap().query_one(question, &[]).await.unwrap().get(0)
}

/// What every measurement says.
fn check(one: &Value, scenario: &str, lane: &str) {
    assert_eq!((one["scenario"].as_str(), one["lane"].as_str()), (Some(scenario), Some(lane)), "{one}");
    assert!(one["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{one}");
    // While a few are enqueued, a slow relayer may not get to record one.
    assert!(one["per_second"].as_f64().is_some_and(|rate| rate > 0.0 || scenario == "mixed"), "{one}");
    assert_eq!(one["payload_bytes"], 256);
    assert!(one["postgres"]["wal_bytes_per_message"].as_f64().is_some_and(|bytes| bytes > 100.0), "{one}");
    assert!(one["postgres"]["buffers_hit_per_message"].as_f64().is_some_and(|buffers| buffers > 1.0), "{one}");
    for field in ["cpu_seconds", "wal_syncs_per_message", "buffers_read_per_message"] {
        assert!(one["postgres"][field].as_f64().is_some_and(|number| number >= 0.0), "{field}: {one}");
    }
}

fn check_times(one: &Value) {
    let times: Vec<_> = ["p50_ms", "p90_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"]
        .map(|name| one[name].as_f64().unwrap())
        .to_vec();
    assert!(times[0] > 0.0 && times.is_sorted(), "{one}");
}

#[tokio::test]
async fn every_scenario_enqueues_and_dispatches_payments_and_counts_them() {
    let database = scratch().await;
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("bench.html");
    let scenarios = ["enqueue", "batch", "drain", "latency", "mixed"];
    let arguments = [&scenarios[..], &["--report", page.to_str().unwrap()]].concat();
    let ran = bench(&database, &arguments).exits(0);
    let all = measurements(&ran);
    assert_eq!(all.len(), scenarios.len(), "{}", ran.all());
    for (one, scenario) in all.iter().zip(scenarios) {
        check(one, scenario, "payment");
        match scenario {
            "drain" => assert!(one.get("p50_ms").is_none() && one.get("clients").is_none(), "{one}"),
            _ => check_times(one),
        }
        if scenario != "mixed" {
            assert_eq!(one["count"], 30, "{one}");
        }
    }
    assert_eq!((&all[3]["latency_of"], &all[3]["rate"]), (&"commit_to_dispatch".into(), &100.into()));
    assert!(all[3]["call_to_dispatch"]["p50_ms"].as_f64() > all[3]["p50_ms"].as_f64(), "{}", all[3]);
    assert!(all[4]["enqueued"] == 30 && all[4]["backlog"].as_u64().unwrap() <= 32, "{}", all[4]);
    assert!(ran.json()["postgres"]["settings"]["fsync"].is_string() && ran.json()["machine"]["cpus"].is_u64());
    // Each of the two scenarios with several clients warms them up with one more.
    let ended =
        "select count(*) from symphony.payment_outbox_attempts where rail_type = 'BENCH' and state = 'DISPATCHED'";
    assert_eq!(count(&database, ended).await, 5 * 30 + 2 * 2, "{}", ran.all());
    assert_eq!(count(&database, "select count(*) from symphony.payment_outbox_pending").await, 0);
    assert!(ran.stderr.contains("drop that database"), "{}", ran.all());

    let html = std::fs::read_to_string(page).unwrap();
    assert_eq!(
        html.matches("<svg class=\"plot\"").count(),
        4 + 3,
        "bars for each scenario but the steady one, curves for each kind of time"
    );
    assert!(html.contains("<polyline") && html.contains("prefers-color-scheme: dark"));
    for needs in ["<script", "http://", "https://", "url("] {
        assert!(!html.contains(needs), "the page needs {needs}");
    }
    database.close().await.unwrap();
}

#[tokio::test]
async fn ordered_rails_events_and_metadata_are_drained_to_the_last_row() {
    let database = scratch().await;
    for (lane, ordered) in [("payment", true), ("event", false), ("event", true), ("metadata", false)] {
        let ordered_too: &[&str] = if ordered { &["--ordered"] } else { &[] };
        let ran = bench(&database, &[&["drain", "latency", "--lane", lane], ordered_too].concat()).exits(0);
        let all = measurements(&ran);
        check(&all[0], "drain", lane);
        check(&all[1], "latency", lane);
        assert!(all.iter().all(|one| one["count"] == 30 && one["ordered"] == ordered), "{}", ran.all());
    }
    let events =
        "select count(*) from m10_recovery.outbox where aggregate_type = 'BENCH' and processed_at is not null";
    let entries =
        "select count(*) from symphony.metadata_outbox where entity_type = 'BENCH' and status = 'PUBLISHED'";
    let payments = "select count(*) from symphony.payment_outbox_attempts where rail_type = 'BENCH_ORDERED'";
    for (question, right) in [(events, 120), (entries, 60), (payments, 60)] {
        assert_eq!(count(&database, question).await, right, "{question}");
    }
    database.close().await.unwrap();
}

/// What a delivery to a real destination says.
fn check_delivery(one: &Value, to: &str, lane: &str, destination: &str) {
    check(one, "deliver", lane);
    check_times(one);
    assert_eq!((&one["to"], &one["latency_of"]), (&to.into(), &"dispatch".into()), "{one}");
    assert_eq!(
        (&one["destination"], &one["received"], &one["count"]),
        (&destination.into(), &30.into(), &30.into())
    );
    assert!(one["destination_cpu_seconds"].as_f64().is_some_and(|seconds| seconds >= 0.0), "{one}");
    assert!(one.get("clients").is_none(), "{one}");
}

#[tokio::test]
async fn a_backlog_is_delivered_to_a_real_bank_and_a_real_nats_which_count_every_row() {
    let database = scratch().await;
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("bench.html");
    let to = ["deliver", "--to", "http,nats", "--report", page.to_str().unwrap()];
    let ran = bench(&database, &to).exits(0);
    let [bank, nats] = &measurements(&ran)[..] else { panic!("{}", ran.all()) };
    check_delivery(bank, "http", "payment", "the simulated bank");
    check_delivery(nats, "nats", "event", "NATS");
    assert!(ran.json().get("unavailable").is_none(), "{}", ran.all());
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("payment, to http") && html.contains("event, to nats"), "{html}");
    assert!(html.contains("destination CPU") && html.contains("One dispatch to a real destination"), "{html}");

    // In order, by two relayers with few slots: the benchmark reads the order from the ledger and the stream.
    let ordered = ["--ordered", "--relayers", "2", "--slots", "4", "--batch-size", "5"];
    let ran = bench(&database, &[&["deliver", "--to", "http", "--to", "nats"], &ordered[..]].concat()).exits(0);
    for (one, to) in measurements(&ran).iter().zip(["http", "nats"]) {
        assert_eq!(
            (&one["to"], &one["received"], &one["ordered"]),
            (&to.into(), &30.into(), &true.into()),
            "{one}"
        );
        assert_eq!(
            (&one["relayers"], &one["slots"], &one["batch_size"]),
            (&2.into(), &4.into(), &5.into()),
            "{one}"
        );
    }
    let payments = "select count(*) from symphony.payment_outbox_attempts
                    where rail_type in ('BENCH', 'BENCH_ORDERED') and state = 'DISPATCHED'";
    let events = "select count(*) from m10_recovery.outbox where processed_at is not null";
    for question in [payments, events] {
        assert_eq!(count(&database, question).await, 60, "{question}");
    }
    database.close().await.unwrap();
}

#[tokio::test]
async fn redis_and_rabbitmq_receive_every_event_of_a_backlog() {
    let database = scratch().await;
    let ran = bench(&database, &["deliver", "--to", "redis,rabbitmq"]).exits(0);
    let [redis, rabbitmq] = &measurements(&ran)[..] else { panic!("{}", ran.all()) };
    check_delivery(redis, "redis", "event", "Redis");
    check_delivery(rabbitmq, "rabbitmq", "event", "RabbitMQ");
    database.close().await.unwrap();
}

#[cfg(feature = "kafka")]
#[tokio::test]
async fn the_mock_cluster_of_librdkafka_receives_every_event_of_a_backlog() {
    let database = scratch().await;
    let ran = bench(&database, &["deliver", "--to", "kafka"]).exits(0);
    check_delivery(&measurements(&ran)[0], "kafka", "event", "the mock cluster of librdkafka");

    // A cluster that is given keeps its records: each run counts its own.
    let cluster = Program::start(env!("CARGO_BIN_EXE_symphony"), ["bench", "kafka-mock"]).unwrap();
    let brokers = cluster.wait_for_line(|line| line.contains(':'), DEFAULT_TIMEOUT).await.unwrap();
    for _ in 0..2 {
        let ran = bench(&database, &["deliver", "--to", "kafka", "--kafka-brokers", &brokers]).exits(0);
        let one = &measurements(&ran)[0];
        assert_eq!((&one["destination"], &one["received"]), (&"Kafka".into(), &30.into()), "{one}");
        assert!(one.get("destination_cpu_seconds").is_none(), "{one}");
    }
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_broker_that_is_not_installed_is_reported_and_the_other_destinations_are_measured() {
    let database = scratch().await;
    let without_nats = |to: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_symphony"))
            .args([&["bench", "deliver", "--to", to], &TINY[..]].concat())
            .env("DATABASE_URL", database.url())
            .env("SYMPHONY_NATS_SERVER", "/not-installed/nats-server")
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or(-1);
        Ran { code, stdout: text(output.stdout), stderr: text(output.stderr) }
    };
    let says = |ran: &Ran, words: &[&str]| {
        let words =
            [words, &["--to nats was not measured", "NATS is not installed", "scripts/setup --brokers"]].concat();
        assert!(words.iter().all(|words| ran.stderr.contains(words)), "{}", ran.all());
    };
    let alone = without_nats("nats").exits(1);
    says(&alone, &["\"hint\":"]);
    assert_eq!(alone.stdout, "", "{}", alone.all());

    // The result on stdout has it too, so stderr has the text.
    let ran = without_nats("nats,http").exits(1);
    says(&ran, &["hint:"]);
    let [bank] = &measurements(&ran)[..] else { panic!("{}", ran.all()) };
    check_delivery(bank, "http", "payment", "the simulated bank");
    assert_eq!(ran.json()["unavailable"][0]["to"], "nats", "{}", ran.all());
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_mixed_run_under_a_held_snapshot_and_an_idle_one_say_how_relayers_fared() {
    let database = scratch().await;
    let arguments =
        ["bench", "mixed", "idle", "--for", "2s", "--rate", "100", "--clients", "2", "--hold-snapshot", "--json"];
    let ran = symphony(&database.url(), &arguments).exits(0);
    let [mixed, idle] = &measurements(&ran)[..] else { panic!("{}", ran.all()) };
    assert_eq!(mixed["hold_snapshot"], true, "{mixed}");
    let stretches = mixed["stretches"].as_array().unwrap();
    assert!((5..=10).contains(&stretches.len()), "{mixed}");
    for stretch in stretches {
        assert!(stretch["claims"].as_u64().unwrap() > 0, "{mixed}");
        assert!(stretch["claim_p50_ms"].as_f64().unwrap() <= stretch["claim_p99_ms"].as_f64().unwrap(), "{mixed}");
    }
    // What is held is let go: the session is gone, and with it its transaction.
    let open =
        "select count(*) from pg_stat_activity where datname = current_database() and xact_start is not null
                and pid <> pg_backend_pid()";
    assert_eq!(count(&database, open).await, 0);

    assert_eq!((&idle["count"], idle.get("hold_snapshot")), (&0.into(), None), "{idle}");
    let transactions = idle["transactions_per_second"].as_f64().unwrap();
    assert!(transactions > 0.0 && transactions < 20.0, "{idle}");
    for one in [mixed, idle] {
        let memory = one["relayer_peak_memory_bytes"].as_u64().unwrap();
        assert!((1 << 20..256 << 20).contains(&memory), "{one}");
        assert!(one["relayer_start_seconds"].as_f64().unwrap() > 0.0, "{one}");
    }

    let ran = symphony("", &["bench", "enqueue", "--hold-snapshot"]).exits(2);
    assert!(ran.stderr.contains("for drain and mixed") && ran.stderr.contains("hint:"), "{}", ran.all());
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_drain_beside_a_long_ledger_has_the_ledger_in_partitions_and_a_snapshot_held() {
    let long = ["--ledger", "0,2400", "--hold-snapshot", "--rounds", "2"];
    let ran = symphony("", &[&["bench", "drain"], &TINY[..], &long[..]].concat()).exits(0);
    let found: Vec<_> =
        measurements(&ran).iter().map(|one| (one["round"].as_u64(), one["ledger"].as_u64())).collect();
    let (first, second) = (Some(1), Some(2));
    assert_eq!(found, [(first, None), (first, Some(2400)), (second, None), (second, Some(2400))], "{}", ran.all());
    assert!(measurements(&ran).iter().all(|one| one["hold_snapshot"] == true), "{}", ran.all());

    let database = scratch().await;
    let ran = bench(&database, &["drain", "--ledger", "100"]).exits(2);
    assert!(ran.stderr.contains("private server") && ran.stderr.contains("\"hint\":"), "{}", ran.all());
    let ran = bench(&database, &["drain", "--lane", "event", "--ledger", "100"]).exits(2);
    assert!(ran.stderr.contains("for the payment lane") && ran.stderr.contains("\"hint\":"), "{}", ran.all());
    database.close().await.unwrap();
}

#[tokio::test]
async fn without_a_database_it_brings_its_own_and_installs_where_nothing_is() {
    let ran = symphony("", &[&["bench", "drain"], &TINY[..]].concat()).exits(0);
    assert_eq!(ran.json()["postgres"]["private"], true);
    assert_eq!(ran.json()["postgres"]["settings"]["synchronous_commit"], "on");
    assert_eq!(measurements(&ran)[0]["count"], 30);

    let empty = Server::from_env().await.unwrap().empty_database().await.unwrap();
    let ran = bench(&empty, &["enqueue", "--relayers", "0", "--rounds", "2"]).exits(0);
    let rounds: Vec<_> = measurements(&ran).iter().map(|one| one["round"].as_u64()).collect();
    assert_eq!(rounds, [Some(1), Some(2)]);
    assert_eq!(
        (measurements(&ran)[0]["relayers"].as_u64(), ran.json()["postgres"]["private"].as_bool()),
        (Some(0), Some(false))
    );
    empty.close().await.unwrap();
}

#[tokio::test]
async fn a_database_with_other_rows_is_refused_and_left_unchanged() {
    let database = scratch().await;
    let owner = database.connect().await.unwrap();
    owner
        .batch_execute(
            "select symphony.register_payment_rail('sepa', '{}', 'ana', 'a rail of ours');
             select symphony.enqueue_payment_outbox('i', 'p', 'k', 'sepa', '{}');
             select m10_recovery.publish_outbox('order', '1', 'placed', '{}')",
        )
        .await
        .unwrap();
    let untouched = async || {
        let left = "select count(*) from symphony.payment_outbox_pending p, m10_recovery.outbox o
                    where p.lease_token is null and p.attempt_count = 0 and o.claimed_at is null and o.retry_count = 0";
        assert_eq!(count(&database, left).await, 1);
    };
    for lane in ["payment", "event", "metadata"] {
        let ran = bench(&database, &["drain", "--lane", lane]).exits(1);
        assert!(
            ran.stderr.contains("rows that no benchmark has enqueued") && ran.stderr.contains("\"hint\":"),
            "{}",
            ran.all()
        );
    }
    // A claim on events takes any row, so no flag helps, and the relayer itself refuses to start.
    let ran = bench(&database, &["drain", "--lane", "event", "--beside-other-rows"]).exits(1);
    assert!(ran.stderr.contains("need their own database"), "{}", ran.all());
    let ran = symphony(&database.url(), &["bench", "relayer", "--lane", "event"]).exits(1);
    assert!(ran.stderr.contains("holds rows that no benchmark has enqueued"), "{}", ran.all());
    untouched().await;
    bench(&database, &["drain", "--beside-other-rows"]).exits(0);
    untouched().await;
    drop(owner);
    database.close().await.unwrap();
}

#[tokio::test]
async fn no_setting_of_a_relayer_leads_to_the_null_destination() {
    let database = scratch().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("symphony.toml");
    for kind in ["nothing", "noop", "no-op", "none", "null", "bench", "BENCH", "test"] {
        for section in ["rails", "sinks", "stores"] {
            let way = format!("[{section}.BENCH]\nkind = \"{kind}\"\n");
            let route = match section {
                "sinks" => {
                    "[event]\nsource = \"//x\"\n[[event.routes]]\naggregate_type = \"*\"\nevent_type = \"*\"\nsink = \"BENCH\"\ndestination = \"x\"\n"
                }
                "stores" => "[[metadata.routes]]\nentity_type = \"*\"\nstore = \"BENCH\"\n",
                _ => "",
            };
            std::fs::write(&file, format!("{way}{route}")).unwrap();
            let ran = symphony(&database.url(), &["run", "--check", "--config", file.to_str().unwrap()]).exits(2);
            assert!(ran.stderr.contains("BENCH: kind: must be one of"), "{}", ran.all());
        }
    }
    database.close().await.unwrap();
}

#[test]
fn wrong_sizes_are_refused_with_what_is_right() {
    for (arguments, words) in [
        (&["pour"][..], "enqueue, batch, drain, deliver, latency, mixed"),
        (&["drain", "--relayers", "0"], "needs a relayer"),
        (&["deliver", "--relayers", "0"], "needs a relayer"),
        (&["deliver", "--to", "fax"], "http, nats, redis, rabbitmq, kafka"),
        (&["drain", "--to", "nats"], "--to is for the deliver scenario"),
        (&["deliver", "--to", "nats", "--lane", "payment"], "is of the event lane"),
        (&["deliver", "--to", "nats", "--kafka-brokers", "b:9092"], "is for deliver --to kafka"),
        (&["drain", "--lane", "metadata", "--ordered"], "no order to keep"),
        (&["enqueue", "--clients", "0"], "1..=150"),
        (&["latency", "--rate", "0"], "1..=100000"),
        (&["batch", "--batch", "5001"], "1..=5000"),
        (&["enqueue", "--for", "soon"], "a duration such as 10s"),
    ] {
        let ran = symphony("", &[&["bench"], arguments].concat()).exits(2);
        assert!(ran.stderr.contains(words), "{}", ran.all());
    }
    let help = symphony("", &["bench", "--help"]).exits(0);
    assert!(!help.stdout.contains("relayer [") && !help.stdout.contains("Commands:"), "{}", help.stdout);
}
