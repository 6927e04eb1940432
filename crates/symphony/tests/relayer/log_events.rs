//! Log lines that alerting is written against: each has its fixed name in the field `event`.

use serde_json::{Value, json};
use symphony_proof::kit::proxy::{Harm, Proxy};
use symphony_proof::kit::wait::BOUND;

use crate::load::instruction;
use crate::relayer::Relayer;
use crate::yard::{RAIL, Yard};

/// The lines with this event, as JSON. The relayer has ended.
async fn events(relayer: &Relayer, name: &str) -> Vec<Value> {
    let lines = relayer.lines().await;
    let parsed = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|line| line["event"] == name).collect()
}

#[tokio::test]
async fn a_completion_that_is_refused_because_the_lease_is_lost_is_a_concurrency_event() {
    let yard = Yard::open().await;
    let network = Proxy::before(&yard.url).unwrap();
    let completion = network.arm(Harm::ReplyHeld, "claim_outbox_batch", 1);
    let mut orders = yard.orders().payment("lease", "'30s'").payment("call_timeout", "'20s'");
    orders.url = network.url().to_owned();
    yard.enqueue("raced", 1).await;
    let late = yard.relayer(&orders).await;
    // It is about to get its lease; by the time that it completes, another worker has the row.
    completion.wait_fired(1, BOUND).await.unwrap();
    let takeover = "update symphony.payment_outbox_pending
                    set claimed_by = 'another worker', lease_token = gen_random_uuid()";
    yard.owner().await.batch_execute(takeover).await.unwrap();
    completion.release();
    let line = late.says("CONCURRENCY_EVENT").await;
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["event"], &line["level"]), (&json!("CONCURRENCY_EVENT"), &json!("INFO")), "{line}");
    let known = format!(
        "select count(*) from symphony.payment_outbox_pending where outbox_id = '{}'",
        line["lease"].as_str().unwrap()
    );
    assert_eq!(yard.number(&known).await, 1, "{line}");
    late.stop().await;
    assert_eq!(events(&late, "CONCURRENCY_EVENT").await.len(), 1);
}

#[tokio::test]
async fn each_payment_that_ends_as_failed_is_one_warning_with_ids_and_codes() {
    const REFUSED: usize = 3;
    let yard = Yard::open().await;
    yard.rail(RAIL, &json!({"max_attempts": 2})).await;
    let key = |number| instruction("bad", number, RAIL).idempotency_key;
    let faults = json!({"for_key": {
        (key(0)): ["refuse"], (key(1)): ["refuse"], (key(2)): ["busy", "busy"], (key(3)): ["ok"],
    }});
    yard.bank.order(&faults).await;
    let relayer = yard.relayer(&yard.orders()).await;
    yard.enqueue("bad", REFUSED + 1).await;
    yard.is_done().await;
    relayer.stop().await;

    let lines = events(&relayer, "PAYMENT_FAILED").await;
    assert_eq!(lines.len(), REFUSED, "{lines:?}");
    let mut codes: Vec<_> = lines.iter().map(|line| line["error_code"].as_str().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["RAIL_LATER", "RAIL_REFUSED", "RAIL_REFUSED"]);
    for line in &lines {
        assert_eq!((&line["level"], &line["rail"]), (&json!("WARN"), &json!(RAIL)), "{line}");
        let known = format!(
            "select count(*) from symphony.payment_outbox_dlq where outbox_id = '{}'",
            line["outbox_id"].as_str().unwrap()
        );
        assert_eq!(yard.number(&known).await, 1, "{line}");
    }
}
