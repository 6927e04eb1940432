//! Rails whose bank takes half a minute beside a rail whose bank does not.

use serde_json::json;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::bank::Bank;
use crate::harness::Harness;
use crate::producers::instruction;

const SLOW: [&str; 2] = ["slow_a", "slow_b"];
const QUICK: &str = "quick";

#[tokio::test]
async fn two_rails_that_are_slow_leave_slots_to_a_third() {
    let harness = Harness::start().await;
    harness.bank.set_faults(&json!({"latency": "29s"})).await;
    let quick_bank = Bank::start(&[]).await;
    let rails = [SLOW[0], SLOW[1], QUICK];
    let mut settings = harness.settings_for(&rails).payment_defaults().payment("slots", "8");
    let of_quick = settings.rails.get_mut(QUICK).unwrap();
    *of_quick = of_quick.replace(&harness.bank.address().to_string(), &quick_bank.address().to_string());
    settings = settings.payment("unserved_rails", "'allow'");
    let mut producer = harness.producer();
    for rail in rails {
        harness.set_rail(rail, &json!({})).await;
    }
    for rail in SLOW {
        for number in 0..20 {
            producer.enqueue(&instruction(rail, number, rail)).await;
        }
    }
    let relayer = harness.start_relayer(&settings).await;
    // The slow rails have all that they get: three quarters of the slots, or one more for the last that began.
    until("six or seven leases are held", DEFAULT_TIMEOUT, async || {
        let held = "select count(*) from symphony.payment_outbox_pending where lease_token is not null";
        harness.query_number(held).await >= 6
    })
    .await
    .unwrap();
    for number in 0..100 {
        producer.enqueue(&instruction(QUICK, number, QUICK)).await;
    }
    let left = format!("select count(*) from symphony.payment_outbox_pending where rail_type = '{QUICK}'");
    until("the quick rail is drained", DEFAULT_TIMEOUT, async || harness.query_number(&left).await == 0)
        .await
        .unwrap();
    // It did not wait for a slow one to end.
    let ended = format!("select count(*) from symphony.payment_outbox_attempts where rail_type <> '{QUICK}'");
    assert_eq!(harness.query_number(&ended).await, 0);
    relayer.program.kill9().await.unwrap();
}
