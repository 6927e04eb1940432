//! Proof 27, one step at a time: a relayer dies at each step of its loop, and another carries on.

use std::os::unix::process::ExitStatusExt as _;

use serde_json::json;
use symphony_proof::kit::proxy::{Harm, Proxy};
use symphony_proof::kit::wait::BOUND;
use symphony_relay::fail_point::ALL;

use crate::relayer::{Orders, Relayer};
use crate::yard::Yard;

/// How many instructions wait for each victim.
const WAITING: usize = 8;
const ABORTED: i32 = 6;

#[tokio::test]
async fn whatever_step_a_relayer_dies_at_another_carries_on() {
    let yard = Yard::open().await;
    for (_, step) in ALL {
        yard.enqueue(step, WAITING).await;
        let victim = match *step {
            "before_release" | "after_release" => stopped_while_it_claims(&yard, step).await,
            "before_renew" | "after_renew" => {
                // Dispatches that outlast a third of their lease.
                yard.bank.order(&json!({"latency": "2s"})).await;
                yard.relayer(&orders(&yard, step).payment("lease", "'4s'").payment("call_timeout", "'3s'")).await
            }
            _ => yard.relayer(&orders(&yard, step)).await,
        };
        let status = victim.program.exit(BOUND).await.unwrap();
        assert_eq!(status.signal(), Some(ABORTED), "{step}: {}", victim.program.tail());
        yard.bank.order(&json!({"latency": "0ms"})).await;

        // Half a minute passes.
        yard.expire_leases().await;
        let heir = yard.relayer(&yard.orders()).await;
        yard.audit().await;
        heir.stop().await;
    }
}

/// Leases that do not run out by themselves: that time passes is for the test to say.
fn orders(yard: &Yard, step: &str) -> Orders {
    let orders = yard.orders().payment("lease", "'30s'").payment("call_timeout", "'20s'");
    orders.dying_at(step)
}

/// A relayer that is told to stop while a claim is under way gives back what that brings.
async fn stopped_while_it_claims(yard: &Yard, step: &str) -> Relayer {
    let network = Proxy::before(&yard.url).unwrap();
    let claim = network.arm(Harm::ReplyHeld, "claim_outbox_batch", 1);
    let mut orders = orders(yard, step);
    orders.url = network.url().to_owned();
    let victim = yard.relayer(&orders).await;
    claim.wait_fired(1, BOUND).await.unwrap();
    victim.program.term();
    // Not the program's own line: the lane must know of it before the claim comes back.
    victim.says(r#""held":0"#).await;
    claim.release();
    victim.program.exit(BOUND).await.unwrap();
    victim
}
