//! A relayer dies at each step of its loop, and another carries on.

use std::os::unix::process::ExitStatusExt as _;

use symphony_proof::kit::proxy::{Harm, Proxy};
use symphony_proof::kit::wait::BOUND;
use symphony_relay::fail_point::ALL;

use crate::course::Course;
use crate::relayer::Relayer;
use crate::second::Second;

/// How many entries wait for each victim.
const WAITING: usize = 20;
const ABORTED: i32 = 6;

#[tokio::test]
async fn whatever_step_a_relayer_dies_at_another_carries_on() {
    let mut course = Course::open(Second::postgres().await).await;
    // Claims of this lane are not renewed, so nobody dies of it.
    for (_, step) in ALL.iter().filter(|(_, step)| !step.ends_with("_renew")) {
        let writing = course.begin(WAITING);
        course.finish(writing).await;
        let victim = if step.ends_with("_release") {
            stopped_while_it_claims(&course, step).await
        } else {
            course.relayer_with(&course.orders.clone().dying_at(step)).await
        };
        let status = victim.program.exit(BOUND).await.unwrap();
        assert_eq!(status.signal(), Some(ABORTED), "{step}: {}", victim.program.tail());

        // Five minutes pass.
        course.mourn(&victim).await;
        let heir = course.relayer().await;
        course.until_all_ended().await;
        course.audit().await;
        heir.stop().await;
    }
}

/// A relayer that is told to stop while a claim is under way gives back what that brings.
async fn stopped_while_it_claims(course: &Course, step: &str) -> Relayer {
    let mut orders = course.orders.clone().dying_at(step);
    let network = Proxy::before(&orders.url).unwrap();
    let claim = network.arm(Harm::ReplyHeld, "claim_metadata_batch", 1);
    (orders.url, orders.log_level) = (network.url().to_owned(), "info");
    let victim = course.relayer_with(&orders).await;
    claim.wait_fired(1, BOUND).await.unwrap();
    victim.program.term();
    // Not the program's own line: the lane must know of it before the claim comes back.
    victim.says(r#""held":0"#).await;
    claim.release();
    victim.program.exit(BOUND).await.unwrap();
    victim
}
