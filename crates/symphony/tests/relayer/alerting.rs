//! Every alert in a real run: relayers whose conditions are provoked, a Prometheus that scrapes them, and the rules that ship. The
//! dashboard is asked of the same Prometheus: each of its queries has an answer.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use symphony_outbox::payment::worker;
use symphony_outbox::{BatchSize, WorkerId};
use symphony_proof::kit::pgbouncer::Pooler;
use symphony_proof::kit::proxy::{Newcomers, Proxy};
use symphony_proof::kit::wait::{BOUND, until};

use crate::bank::Bank;
use crate::load::instruction;
use crate::relayer::Orders;
use crate::tower::{Tower, expressions, read, rules};
use crate::yard::{RAIL, Yard};

/// Somebody has paused it; what is under a lease there has expired.
const PAUSED: &str = "paused";
/// Cannot be asked, and its policy is to stop.
const CHEQUE: &str = "cheque";
/// Nobody listens there.
const DEAD: &str = "dead";
/// Takes its time.
const SLOW: &str = "slow";
/// Works, and gets what has ended already.
const ENDED: &str = "ended";

/// The words that begin like a metric of ours.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | ':')));
    words.filter(|word| word.starts_with("symphony_")).map(str::to_owned).collect()
}

/// A relayer that repairs nothing and serves these rails.
fn orders(yard: &Yard, rails: &[&str]) -> Orders {
    let orders = yard.orders_for(rails).payment("repair_every", "'0s'").payment("unserved_rails", "'allow'");
    Orders { log_level: "info", ..orders }
}

async fn enqueue(yard: &Yard, rail: &str, count: usize) {
    let mut till = yard.till();
    for number in 0..count {
        till.enqueue(&instruction(rail, number, rail)).await;
    }
}

/// An hour has passed on a rail that is paused: one row was due all the time, another's worker was not heard of again.
async fn neglect(yard: &Yard) {
    enqueue(yard, PAUSED, 2).await;
    let ghost = yard.database.connect_as("symphony_executor").await.unwrap();
    let one = BatchSize::try_from(1).unwrap();
    let claimed = worker::claim(&ghost, &WorkerId::from("ghost"), one, Duration::from_secs(60)).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let operator = yard.database.connect_as("symphony_operator").await.unwrap();
    operator.execute("select symphony.pause_payment_rail($1, 'yard', 'a test')", &[&PAUSED]).await.unwrap();
    yard.expire_leases().await;
    // One hour late, and enqueued long before that, which nobody but the owner can pretend.
    let age = "alter table symphony.payment_outbox_pending disable trigger pending_keeps_its_identity;
               update symphony.payment_outbox_pending
               set next_attempt_at = next_attempt_at - interval '1 hour', created_at = created_at - interval '7 hours';
               alter table symphony.payment_outbox_pending enable always trigger pending_keeps_its_identity";
    yard.owner().await.batch_execute(age).await.unwrap();
}

/// A login for which the clock of the database is an hour ahead: its search_path has another function before PostgreSQL's own. Only
/// behind a pooler, since direct sessions pin their search_path.
async fn url_with_an_odd_clock(yard: &Yard, pooler: &Pooler) -> String {
    let url = yard.database.url_as_login(&["symphony_executor"]).await.unwrap();
    let login = url.strip_prefix("postgres://").unwrap().split([':', '@']).next().unwrap().to_owned();
    let odd = format!(
        "create schema odd; grant usage on schema odd to public;
         create function odd.clock_timestamp() returns timestamptz language sql as
           $$ select pg_catalog.clock_timestamp() + interval '1 hour' $$;
         alter role {login} set search_path = odd, pg_catalog"
    );
    yard.owner().await.batch_execute(&odd).await.unwrap();
    pooler.instead_of(&url).unwrap()
}

/// Somebody goes round every function, at the worst moment: what is dispatched on this rail was recorded as that just before.
async fn end_everything_twice(yard: &Yard) {
    let twice = format!(
        "create function symphony.another_end() returns trigger language plpgsql as $$
         begin
           insert into symphony.payment_outbox_attempts
           select (jsonb_populate_record(new, jsonb_build_object('attempt_id', gen_random_uuid(), 'attempt_no', 20))).*;
           return new;
         end $$;
         create trigger another_end before insert on symphony.payment_outbox_attempts
           for each row when (pg_trigger_depth() = 0 and new.rail_type = '{ENDED}' and new.state = 'DISPATCHED')
           execute function symphony.another_end()"
    );
    yard.owner().await.batch_execute(&twice).await.unwrap();
}

/// Waits until each of these alerts has fired with this label. Some end by themselves: they need not fire together.
async fn fire(tower: &Tower, alerts: &[(&str, &str, &str)]) {
    let mut missing = alerts.to_vec();
    let all = until("they fire", 2 * BOUND, async || {
        let firing = tower.query("ALERTS{alertstate=\"firing\"}").await;
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
    let mut yard = Yard::open().await;
    for rail in [PAUSED, DEAD, SLOW, ENDED] {
        yard.rail(rail, &json!({})).await;
    }
    yard.rail(CHEQUE, &json!({"on_unknown": "STOP"})).await;
    yard.rail(RAIL, &json!({"backoff_base_seconds": 2, "backoff_cap_seconds": 2})).await;
    neglect(&yard).await;

    // One whose bank is busy for ever, and which commits cannot wake.
    let ears = Proxy::before(&yard.url).unwrap();
    let mut busy = orders(&yard, &[RAIL, CHEQUE, ENDED]);
    busy.listen_url = ears.url().to_owned();
    busy.more = "[payment.breaker]\nfailures = 1000\n".to_owned();
    let without_inquiry = |section: &String| {
        section.lines().filter(|line| !line.starts_with("inquiry_url")).collect::<Vec<_>>().join("\n")
    };
    busy.rails = busy.rails.iter().map(|(rail, section)| (rail.clone(), without_inquiry(section))).collect();
    let busy = yard.relayer(&busy).await;
    // One whose bank is down, and whose database has another time.
    let mut lonely = orders(&yard, &[DEAD]);
    let pooler = Pooler::before(&yard.database.url(), 8).await.unwrap();
    lonely.url = url_with_an_odd_clock(&yard, &pooler).await;
    lonely.listen_url = yard.url.clone();
    lonely.more = "[payment.breaker]\nfailures = 1\nfirst_pause = '1s'\nlongest_pause = '60s'\n".to_owned();
    let address = yard.bank.address().to_string();
    lonely.rails = lonely
        .rails
        .iter()
        .map(|(rail, section)| (rail.clone(), section.replace(&address, "127.0.0.1:1")))
        .collect();
    let lonely = yard.relayer(&lonely).await;
    // One that loses its database in the middle of its work.
    let wire = Proxy::before(&yard.url).unwrap();
    let bank = std::mem::replace(&mut yard.bank, Bank::start(&["--fault", "latency=60s"]).await);
    let mut cut = orders(&yard, &[SLOW]);
    cut.url = wire.url().to_owned();
    let cut = yard.relayer(&cut).await;
    let _slow = std::mem::replace(&mut yard.bank, bank);

    let jobs = [("symphony", &[busy.endpoints(), lonely.endpoints()][..]), ("symphony-cut", &[cut.endpoints()])];
    let tower = Tower::over(&jobs).await;
    // What grows has to be seen before it does.
    for (query, count) in [("symphony_dlq_depth == 0", 18), ("symphony_terminal_backstop_total == 0", 3)] {
        let so = async || tower.query(query).await.len() == count;
        until(format!("{query} was seen"), BOUND, so).await.unwrap();
    }

    let key = |rail: &str| instruction(rail, 0, rail).idempotency_key;
    let faults =
        json!({"busy": "1", "retry_after": "1s", "for_key": {(key(CHEQUE)): ["cut_after"], (key(ENDED)): ["ok"]}});
    enqueue(&yard, SLOW, 2).await;
    yard.leases_are_held(3).await;
    wire.cut(Newcomers::Refuse).await;
    ears.cut(Newcomers::Refuse).await;
    yard.bank.order(&faults).await;
    end_everything_twice(&yard).await;
    for (rail, count) in [(CHEQUE, 1), (ENDED, 1), (DEAD, 3), (RAIL, 40)] {
        enqueue(&yard, rail, count).await;
    }

    let (busy_place, lonely_place) = (busy.endpoints().to_string(), lonely.endpoints().to_string());
    let provoked = [
        ("SymphonyGaugesMissing", "job", "symphony-cut"),
        ("SymphonyDatabaseTrouble", "job", "symphony-cut"),
        ("SymphonyListenerDown", "instance", &busy_place),
        ("SymphonyRepairNotRunning", "job", "symphony"),
        ("SymphonyDatabaseClockOdd", "instance", &lonely_place),
        ("SymphonyWorkWaits", "rail", PAUSED),
        ("SymphonyWorkWaitsLong", "rail", PAUSED),
        ("SymphonyWorkUnfinished", "rail", PAUSED),
        ("SymphonyLeasesStuck", "rail", PAUSED),
        ("SymphonyRailUnserved", "rail", PAUSED),
        ("SymphonyRetriesRise", "rail", RAIL),
        ("SymphonyBreakerOpen", "rail", DEAD),
        ("SymphonyDeadLettersGrow", "rail", CHEQUE),
        ("SymphonyUnknownOutcomesWaiting", "rail", CHEQUE),
        ("SymphonySecondEndStopped", "job", "symphony"),
    ];
    let mortal =
        [("SymphonyRelayerDown", "instance", busy_place.as_str()), ("SymphonyNoRelayer", "job", "symphony")];
    let listed: BTreeSet<_> = provoked.iter().chain(&mortal).map(|(alert, ..)| (*alert).to_owned()).collect();
    assert_eq!(listed, tower.alerts().await, "every alert is provoked");
    fire(&tower, &provoked).await;
    let ahead = tower.query("symphony_database_clock_offset_seconds > 3000").await;
    assert!(ahead.iter().any(|one| one["metric"]["instance"] == *lonely_place), "{ahead:?}");

    // All of that at once is what a dashboard is for.
    for query in expressions() {
        until(format!("there is an answer to {query}"), BOUND, async || !tower.query(&query).await.is_empty())
            .await
            .unwrap();
    }
    let seen = tower.metrics().await;
    let named = metrics_in(&format!("{}\n{}", rules(), read("ops/grafana/symphony.json")));
    assert_eq!(
        named.difference(&seen).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "metrics that no relayer shows"
    );

    busy.program.kill9().await.unwrap();
    fire(&tower, &mortal[..1]).await;
    lonely.program.kill9().await.unwrap();
    fire(&tower, &mortal[1..]).await;
}
