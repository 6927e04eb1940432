//! Every proof, each on a database of its own.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use std::collections::BTreeSet;

use symphony_proof::kit::scratch::Server;
use symphony_proof::proofs;

/// A test for each proof, and the list of their names.
macro_rules! proofs {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[tokio::test]
            async fn $name() {
                prove(stringify!($name)).await;
            }
        )*
    };
}

proofs! {
    nobody_can_change_what_is_in_the_ledger
    nobody_can_truncate_pending_or_change_what_identifies_a_row
    an_outbox_has_each_attempt_number_once_and_ends_once
    every_lease_ever_granted_is_accounted_for
    folding_the_events_gives_the_present_state_of_every_outbox
    concurrent_enqueues_of_one_key_give_one_outbox
    a_key_cannot_be_reused_for_another_payment
    an_enqueue_that_is_rolled_back_leaves_nothing_and_wakes_nobody
    sequences_are_gapless_and_visible_in_order
    an_expired_lease_that_is_repaired_is_due_again_with_one_ledger_row
    a_late_worker_cannot_complete_what_another_has_claimed
    of_racing_completions_with_one_token_exactly_one_succeeds
    many_claimers_lease_no_row_twice_and_skip_none
    repairers_at_once_end_each_expired_lease_once
    at_the_ceiling_a_row_fails_for_good_and_goes_to_people
    backoff_is_deterministic_and_equals_the_policy
    on_an_ordered_rail_nothing_overtakes_and_nothing_is_stranded
    an_unknown_outcome_is_not_tried_again_before_a_person_says_it_was_not_paid
    a_paused_rail_and_a_rail_at_its_cap_hand_out_nothing_more
    each_role_has_exactly_the_rights_of_the_contract
    what_a_caller_plants_does_not_change_what_a_function_does
    every_function_has_one_signature_a_fixed_search_path_and_no_public_right
    the_event_contract_holds_rule_by_rule_and_drift_is_named
    an_entry_moves_along_the_five_arrows_and_no_other
    a_worker_that_lost_its_claim_cannot_finish_the_entry
    what_is_append_only_cannot_be_changed_through_a_parent_table
    what_is_append_only_cannot_be_changed_by_a_subscription
    a_compressed_payload_is_measured_by_what_it_holds
    what_is_committed_after_an_export_is_in_the_next_one
}

#[test]
fn every_promise_of_the_database_has_its_proof_and_its_test() {
    let numbers: BTreeSet<u8> = proofs::all().iter().map(|proof| proof.number).collect();
    // 26 to 29 are about the relayer as a process.
    assert_eq!(numbers, (1..=25).chain(30..=33).collect());
    let names: Vec<&str> = proofs::all().iter().map(|proof| proof.name).collect();
    assert_eq!(names, TESTED);
}

async fn prove(name: &str) {
    let proof = proofs::named(name).unwrap();
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    match proof.run(&database).await {
        Ok(evidence) => {
            assert!(!evidence.steps.is_empty(), "a proof without a step proves nothing");
            evidence.steps.iter().for_each(|step| println!("{step}\n"));
        }
        Err(failure) => panic!("{}\n\n{failure}", proof.promise),
    }
    database.close().await.unwrap();
}
