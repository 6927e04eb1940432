//! Every proof, each on a database of its own.
#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use std::collections::BTreeSet;

use symphony_testkit::test_database::Server;

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
    no_role_can_change_the_ledger
    no_role_can_truncate_pending_or_change_what_identifies_a_row
    an_outbox_has_each_attempt_number_once_and_ends_once
    every_lease_ever_granted_is_accounted_for
    folding_the_events_gives_the_current_state_of_every_outbox
    concurrent_enqueues_of_one_key_give_one_outbox
    a_key_cannot_be_reused_for_another_payment
    an_enqueue_that_is_rolled_back_leaves_nothing_and_sends_no_notification
    sequences_are_gapless_and_visible_in_order
    an_expired_lease_that_is_repaired_is_due_again_with_one_ledger_row
    a_late_worker_cannot_complete_what_another_has_claimed
    of_racing_completions_with_one_token_exactly_one_succeeds
    many_claimers_lease_no_row_twice_and_skip_none
    repairers_at_once_end_each_expired_lease_once
    after_max_attempts_a_row_moves_to_the_dead_letter_queue
    backoff_is_deterministic_and_equals_the_policy
    an_ordered_rail_dispatches_in_sequence_and_strands_no_row
    an_unknown_outcome_is_not_redriven_before_it_is_resolved_as_not_paid
    a_paused_rail_and_a_rail_at_its_in_flight_limit_grant_no_lease
    each_role_has_exactly_the_rights_of_the_contract
    objects_planted_by_a_caller_do_not_change_what_a_function_does
    every_function_has_one_signature_a_fixed_search_path_and_no_public_right
    the_event_contract_holds_rule_by_rule_and_drift_is_named
    a_metadata_entry_makes_the_five_allowed_transitions_and_no_other
    a_worker_that_lost_its_claim_cannot_complete_the_entry
    append_only_tables_cannot_be_changed_through_a_parent_table
    append_only_tables_cannot_be_changed_by_a_subscription
    a_compressed_payload_counts_with_its_uncompressed_size
    a_row_committed_after_an_export_is_in_the_next_export
    an_erasure_replaces_the_payload_by_a_tombstone_and_changes_nothing_else
    no_claim_of_any_lane_is_granted_under_the_epoch_of_another_server
    a_payment_of_an_earlier_epoch_has_an_unknown_outcome_until_an_attempt_of_this_one
    no_number_of_an_earlier_epoch_is_given_out_again_and_later_versions_win
    an_unknown_outcome_of_another_endpoint_is_reported_to_the_worker
    an_outcome_of_an_outbox_that_the_database_does_not_know_is_recorded_once_and_kept
    a_payment_is_either_claimed_or_cancelled_and_never_both
    a_failure_is_redriven_under_a_new_key_only_if_the_ledger_knows_that_it_was_not_paid
    a_rail_that_publishes_outcomes_publishes_each_ending_once_in_its_transaction
    a_failure_on_a_rail_that_holds_stops_the_later_payments_of_its_participant
    no_payment_passes_a_failure_that_holds_its_stream_and_none_waits_for_ever
    a_rail_with_a_rate_limit_grants_no_more_leases_than_its_rate_and_one_burst
    a_payment_that_the_rail_has_accepted_is_never_sent_again
    a_confirmation_settles_a_payment_once_whatever_it_races_with
    a_confirmation_that_contradicts_what_is_known_changes_nothing_and_is_kept
}

#[test]
fn every_promise_of_the_database_has_its_proof_and_its_test() {
    let numbers: BTreeSet<u8> = symphony_proof::all().iter().map(|proof| proof.number).collect();
    // 26 to 29 are about the relayer as a process.
    assert_eq!(numbers, (1..=25).chain(30..=41).chain(44..=50).collect());
    let names: Vec<&str> = symphony_proof::all().iter().map(|proof| proof.name).collect();
    assert_eq!(names, TESTED);
}

async fn prove(name: &str) {
    let proof = symphony_proof::named(name).unwrap();
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
