//! The proofs: each tries to break one guarantee of the database, and reports what it tried and what happened.
//!
//! They know the contract of the schema, not its implementation. They call the functions of the contract, attack the
//! tables directly, and change timestamps as the owner, so that no proof waits for a clock.
//!
//! # Layout
//!
//! - [`all`]: the list, by number; [`Proof::run`] runs one on a fresh database
//! - [`Evidence`], [`Step`], [`Failure`]: what a proof reports
//! - `ledger`, `terminal_state`, `conservation`, `timeline`: the ledger is append-only and complete; `parent_tables`,
//!   `replication`: also through a parent table or a subscription
//! - `enqueue`, `keys`, `wakeup`, `sequences`: the transaction of a producer; `cancellation`: its end of a payment
//! - `replacement`: a redrive under a new key
//! - `leases`, `races`, `max_attempts`, `backoff`: claims, leases and retries
//! - `ordered_rail`, `ordered_rail_load`: FIFO rails; `held_streams`, `held_streams_races`: those
//!   on which a failure holds later payments; `unknown_outcome`: redrives; `endpoints`: which bank
//!   an unknown outcome belongs to; `rails`: pauses and in-flight limits; `rate_limit`
//! - `event`: the event lane, its contract and its claims; `metadata`: the metadata lane, its status machine and its claims
//! - `published_outcomes`: the events that tell a producer how its payments ended
//! - `confirmations`: payments that a rail has accepted, and what it confirms by itself
//! - `payload_limits`: the size of a payload and of a claim
//! - `erasure`: the erasure of payloads
//! - `epochs`, `epoch_rows`, `epoch_numbers`: another server, payments of earlier epochs, and numbers across epochs
//! - `late_commit`: exports, and transactions that are open while they run
//! - `grants`, `search_path_attack`, `catalogue`: privileges and definer functions
//! - `sessions`, `clock`, `workload`, `server_state`, `seeded_rng`: sessions per role, timestamps, a random workload,
//!   waits for locks, random numbers

mod backoff;
mod cancellation;
mod catalogue;
mod clock;
mod confirmations;
mod conservation;
mod endpoints;
mod enqueue;
mod epoch_numbers;
mod epoch_rows;
mod epochs;
mod erasure;
mod event;
mod evidence;
mod grants;
mod held_streams;
mod held_streams_races;
mod keys;
mod late_commit;
mod leases;
mod ledger;
mod max_attempts;
mod metadata;
mod ordered_rail;
mod ordered_rail_load;
mod ordered_rail_runs;
mod orphans;
mod parent_tables;
mod payload_limits;
mod published_outcomes;
mod races;
mod rails;
mod rate_limit;
mod replacement;
mod replication;
mod search_path_attack;
mod seeded_rng;
mod sequences;
mod server_state;
mod sessions;
mod terminal_state;
mod timeline;
mod unknown_outcome;
mod wakeup;
mod workload;

use std::future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

pub use evidence::{Evidence, Failure, Step};
use symphony_testkit::test_database::Database;

/// How long a proof may take. A proof that hangs has found a deadlock.
const PROOF_TIMEOUT: Duration = Duration::from_secs(120);

type ProofFuture<'a> = Pin<Box<dyn Future<Output = Result<Evidence, Failure>> + Send + 'a>>;

/// One guarantee and the attempt to break it.
#[derive(Debug)]
pub struct Proof {
    /// Its number in docs/guarantees.md.
    pub number: u8,
    /// The fact that it shows, as the name of a test.
    pub name: &'static str,
    /// The guarantee, as a sentence.
    pub promise: &'static str,
    run: for<'a> fn(&'a Database) -> ProofFuture<'a>,
}

impl Proof {
    /// Tries to break the guarantee on a database that no other session uses.
    pub async fn run(&self, database: &Database) -> Result<Evidence, Failure> {
        let attempt = catch_panic(self.promise, (self.run)(database));
        tokio::time::timeout(PROOF_TIMEOUT, attempt).await.unwrap_or_else(|_| {
            Err(Failure {
                tried: self.promise.to_owned(),
                expected: format!("a result within {PROOF_TIMEOUT:?}"),
                happened: "the proof did not end: sessions wait for each other".into(),
            })
        })
    }
}

/// Turns a panic into a failure, because the caller still has to drop the test databases.
async fn catch_panic(promise: &str, mut running: ProofFuture<'_>) -> Result<Evidence, Failure> {
    future::poll_fn(|context| {
        // The future is dropped after a panic and not polled again.
        let polled = panic::catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context)));
        polled.unwrap_or_else(|thrown| {
            let message = thrown.downcast_ref::<String>().map(String::as_str);
            let message = message.or_else(|| thrown.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Poll::Ready(Err(Failure {
                tried: promise.to_owned(),
                expected: "a result".into(),
                happened: format!("the proof panicked: {message}"),
            }))
        })
    })
    .await
}

/// Proof 25, on both lanes whose claims expire after 5 minutes.
async fn lost_claims_are_refused(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = evidence::Recorder::default();
    event::claims::late_completion_is_refused(database, &mut recorder).await?;
    metadata::claims::late_completion_is_refused(database, &mut recorder).await?;
    Ok(recorder.finish())
}

/// Every proof, by number.
pub fn all() -> &'static [Proof] {
    &ALL
}

/// The proof of this name.
pub fn named(name: &str) -> Option<&'static Proof> {
    ALL.iter().find(|proof| proof.name == name)
}

static ALL: [Proof; 44] = [
    Proof {
        number: 1,
        name: "no_role_can_change_the_ledger",
        promise: "PostgreSQL refuses UPDATE, DELETE and TRUNCATE on the ledger to every role, the owner and a superuser \
                  included; the functions can still append to it.",
        run: |database| Box::pin(ledger::is_append_only(database)),
    },
    Proof {
        number: 2,
        name: "no_role_can_truncate_pending_or_change_what_identifies_a_row",
        promise: "No role can TRUNCATE the pending rows or change the columns that identify one.",
        run: |database| Box::pin(ledger::pending_keeps_its_identity(database)),
    },
    Proof {
        number: 3,
        name: "an_outbox_has_each_attempt_number_once_and_ends_once",
        promise: "Two ledger rows never share an outbox and an attempt number, and no outbox has two terminal rows.",
        run: |database| Box::pin(terminal_state::is_reached_once(database)),
    },
    Proof {
        number: 4,
        name: "every_lease_ever_granted_is_accounted_for",
        promise: "Leases granted equal live leases plus released leases plus ledger rows, after any random workload.",
        run: |database| Box::pin(conservation::holds(database)),
    },
    Proof {
        number: 5,
        name: "folding_the_events_gives_the_current_state_of_every_outbox",
        promise: "The events of payment_outbox_events, folded, give the current state of every outbox.",
        run: |database| Box::pin(timeline::folds(database)),
    },
    Proof {
        number: 6,
        name: "concurrent_enqueues_of_one_key_give_one_outbox",
        promise: "Concurrent enqueues of one key create one outbox with one sequence number; the others are idempotent replays.",
        run: |database| Box::pin(enqueue::one_key_gives_one_outbox(database)),
    },
    Proof {
        number: 7,
        name: "a_key_cannot_be_reused_for_another_payment",
        promise: "The same key with another payload, participant or rail is refused, before and after the terminal state.",
        run: |database| Box::pin(keys::cannot_be_reused(database)),
    },
    Proof {
        number: 8,
        name: "an_enqueue_that_is_rolled_back_leaves_nothing_and_sends_no_notification",
        promise: "An enqueue that is rolled back leaves no row, takes no sequence number and sends no notification.",
        run: |database| Box::pin(wakeup::follows_the_commit(database)),
    },
    Proof {
        number: 9,
        name: "sequences_are_gapless_and_visible_in_order",
        promise: "Sequence numbers of a participant have no gaps, and none is visible before all earlier ones.",
        run: |database| Box::pin(sequences::are_gapless(database)),
    },
    Proof {
        number: 10,
        name: "an_expired_lease_that_is_repaired_is_due_again_with_one_ledger_row",
        promise: "Repair records an expired lease as one ZOMBIE_REQUEUE; the row is due and unleased, and its attempt_count never falls.",
        run: |database| Box::pin(leases::repair_makes_due(database)),
    },
    Proof {
        number: 11,
        name: "a_late_worker_cannot_complete_what_another_has_claimed",
        promise: "A worker that lost its lease changes nothing; the worker with the current lease succeeds.",
        run: |database| Box::pin(leases::late_worker_is_refused(database)),
    },
    Proof {
        number: 12,
        name: "of_racing_completions_with_one_token_exactly_one_succeeds",
        promise: "Of concurrent completions of one lease, one is recorded and the others are refused.",
        run: |database| Box::pin(races::one_completion_wins(database)),
    },
    Proof {
        number: 13,
        name: "many_claimers_lease_no_row_twice_and_skip_none",
        promise: "Concurrent claims lease no row twice and skip no due row.",
        run: |database| Box::pin(races::claims_do_not_overlap(database)),
    },
    Proof {
        number: 14,
        name: "repairers_at_once_end_each_expired_lease_once",
        promise: "Concurrent repairs write one ZOMBIE_REQUEUE per expired lease.",
        run: |database| Box::pin(races::repairs_do_not_overlap(database)),
    },
    Proof {
        number: 15,
        name: "after_max_attempts_a_row_moves_to_the_dead_letter_queue",
        promise: "After max_attempts a RETRYABLE becomes FAILED with RETRIES_EXHAUSTED and an expired lease FAILED with \
                  LEASE_EXPIRED; an unknown outcome stays unknown. The row moves to the dead-letter queue.",
        run: |database| Box::pin(max_attempts::ends_rows(database)),
    },
    Proof {
        number: 16,
        name: "backoff_is_deterministic_and_equals_the_policy",
        promise: "The backoff before every attempt is the rail's policy, to the microsecond, unless the worker gave a delay.",
        run: |database| Box::pin(backoff::equals_the_policy(database)),
    },
    Proof {
        number: 17,
        name: "an_ordered_rail_dispatches_in_sequence_and_strands_no_row",
        promise: "An ordered rail dispatches each participant in sequence, through retries, expired leases and concurrent \
                  enqueues; other participants do not wait, and no row waits for ever.",
        run: |database| Box::pin(ordered_rail::is_kept(database)),
    },
    Proof {
        number: 18,
        name: "an_unknown_outcome_is_not_redriven_before_it_is_resolved_as_not_paid",
        promise: "A failure with an unknown outcome cannot be redriven before an operator resolves it as NOT_PAID, nor ever after PAID; \
                  a redrive keeps the idempotency key.",
        run: |database| Box::pin(unknown_outcome::waits_for_an_operator(database)),
    },
    Proof {
        number: 19,
        name: "a_paused_rail_and_a_rail_at_its_in_flight_limit_grant_no_lease",
        promise: "A paused rail and a rail at its max_in_flight grant no further lease, over any number of workers.",
        run: |database| Box::pin(rails::limit_leases(database)),
    },
    Proof {
        number: 20,
        name: "each_role_has_exactly_the_rights_of_the_contract",
        promise: "Every role has exactly the privileges of the contract on every object, and each one is tried.",
        run: |database| Box::pin(grants::are_exact(database)),
    },
    Proof {
        number: 21,
        name: "objects_planted_by_a_caller_do_not_change_what_a_function_does",
        promise: "Tables, functions and operators that a caller plants in its search_path do not change what a SECURITY DEFINER function does.",
        run: |database| Box::pin(search_path_attack::is_ignored(database)),
    },
    Proof {
        number: 22,
        name: "every_function_has_one_signature_a_fixed_search_path_and_no_public_right",
        promise: "Every function has one signature and a fixed search_path, and PUBLIC can execute none.",
        run: |database| Box::pin(catalogue::is_in_order(database)),
    },
    Proof {
        number: 23,
        name: "the_event_contract_holds_rule_by_rule_and_drift_is_named",
        promise: "The event lane matches its contract: signatures, columns, which events are claimable, backoff, refusals; \
                  verify names every drift of the catalogue.",
        run: |database| Box::pin(event::contract_holds(database)),
    },
    Proof {
        number: 24,
        name: "a_metadata_entry_makes_the_five_allowed_transitions_and_no_other",
        promise: "Of all 25 pairs of statuses the database allows only the five transitions of the Rust type, for every role, the \
                  owner and a superuser; an entry begins as PENDING; a PUBLISHED or DLQ entry does not change.",
        run: |database| Box::pin(metadata::machine_holds(database)),
    },
    Proof {
        number: 25,
        name: "a_worker_that_lost_its_claim_cannot_complete_the_entry",
        promise: "A worker whose claim on an event or a metadata entry was taken over, repaired or completed changes nothing, \
                  though the event contract has no token; the worker with the current claim succeeds.",
        run: |database| Box::pin(lost_claims_are_refused(database)),
    },
    // 26 to 29 are about the relayer as a process; the tests of crates/symphony prove them.
    Proof {
        number: 30,
        name: "append_only_tables_cannot_be_changed_through_a_parent_table",
        promise: "UPDATE, DELETE, MERGE and TRUNCATE through a parent or partitioned table are refused for the ledger, the logs, events \
                  and metadata; the pending table cannot become a child, and no role can DELETE an unfinished row from it.",
        run: |database| Box::pin(parent_tables::change_nothing(database)),
    },
    Proof {
        number: 31,
        name: "append_only_tables_cannot_be_changed_by_a_subscription",
        promise: "The apply worker of a logical-replication subscription is refused the same as a session: changes of the ledger, the \
                  logs, pending rows, events and metadata.",
        run: |database| Box::pin(replication::changes_nothing(database)),
    },
    Proof {
        number: 32,
        name: "a_compressed_payload_counts_with_its_uncompressed_size",
        promise: "Limits on a payload apply to its uncompressed size and its depth, in every lane and for every way to insert it; one claim \
                  returns at most 16 MiB, and at least one row.",
        run: |database| Box::pin(payload_limits::are_enforced(database)),
    },
    Proof {
        number: 33,
        name: "a_row_committed_after_an_export_is_in_the_next_export",
        promise: "An operation or a ledger row of a transaction that began before an export and committed after it is in exactly one \
                  export; while a transaction has written and stays open, an export waits, then refuses and names its session.",
        run: |database| Box::pin(late_commit::is_exported_once(database)),
    },
    Proof {
        number: 34,
        name: "an_erasure_replaces_the_payload_by_a_tombstone_and_changes_nothing_else",
        promise: "An erasure replaces the payload of an ended payment in every row of the ledger and the quarantine by a tombstone, and                   is in the audit log; no role can make any other change. Replays of its key are still recognised, and a salted                   digest proves what the payload was.",
        run: |database| Box::pin(erasure::is_the_only_change(database)),
    },
    Proof {
        number: 35,
        name: "no_claim_of_any_lane_is_granted_under_the_epoch_of_another_server",
        promise: "The first claim on another server, of any lane, opens a new epoch before it is granted; of concurrent claims one \
                  does. A rail with on_epoch_change HOLD then grants nothing until an operator releases it.",
        run: |database| Box::pin(epochs::are_opened_by_claims(database)),
    },
    Proof {
        number: 36,
        name: "a_payment_of_an_earlier_epoch_has_an_unknown_outcome_until_an_attempt_of_this_one",
        promise: "Every claim of a payment of an earlier epoch says that its outcome is unknown, until the ledger has an attempt that was \
                  leased in this one; the memory of its key counts from the enqueue.",
        run: |database| Box::pin(epoch_rows::are_unknown(database)),
    },
    Proof {
        number: 37,
        name: "no_number_of_an_earlier_epoch_is_given_out_again_and_later_versions_win",
        promise: "Sequence numbers, event ids and metadata versions of a new epoch are higher than all of earlier ones, though the clock is \
                  behind, also between a change of the server and the first claim.",
        run: |database| Box::pin(epoch_numbers::are_never_reused(database)),
    },
    Proof {
        number: 38,
        name: "an_unknown_outcome_of_another_endpoint_is_reported_to_the_worker",
        promise: "However a lease ends, the ledger names the endpoint of its worker. A worker at another endpoint is told that an unknown \
                  outcome belongs to the first, through redrives and expired leases, until an operator declares both the same.",
        run: |database| Box::pin(endpoints::keep_their_payments(database)),
    },
    Proof {
        number: 39,
        name: "an_outcome_of_an_outbox_that_the_database_does_not_know_is_recorded_once_and_kept",
        promise: "What a worker reports about a payment that the database has lost is recorded once, without personal data; no role can \
                  change it. The outcome of a lease that was only lost is not recorded.",
        run: |database| Box::pin(orphans::are_kept(database)),
    },
    Proof {
        number: 40,
        name: "a_payment_is_either_claimed_or_cancelled_and_never_both",
        promise: "A payment is cancelled only while it is unleased and nothing of it can have left, in this or a lost history; it is then \
                  never sent, redriven or resolved. A producer that leaves the transaction of a cancellation open delays no worker.",
        run: |database| Box::pin(cancellation::is_final_and_of_unsent_payments(database)),
    },
    Proof {
        number: 41,
        name: "a_failure_is_redriven_under_a_new_key_only_if_the_ledger_knows_that_it_was_not_paid",
        promise: "A new key, and with it a new payload, needs the bank's own code or INVALID_PAYLOAD, a history without an unknown outcome, \
                  and the current epoch; a resolution does not replace them. The new key is recognised like that of an enqueue.",
        run: |database| Box::pin(replacement::needs_a_known_refusal(database)),
    },
    Proof {
        number: 44,
        name: "a_rail_that_publishes_outcomes_publishes_each_ending_once_in_its_transaction",
        promise: "On a rail with publish_outcomes each ending of a payment, and each resolution that changes what the producer was told, \
                  is one event of the event lane, in the transaction that records it; other rails publish nothing.",
        run: |database| Box::pin(published_outcomes::are_exact(database)),
    },
    Proof {
        number: 45,
        name: "a_failure_on_a_rail_that_holds_stops_the_later_payments_of_its_participant",
        promise: "On an ordered rail with on_failure HOLD no later payment of the participant is leased until an operator redrives, resolves \
                  or skips the failure; a redrive takes its place. Other participants and rails go on.",
        run: |database| Box::pin(held_streams::wait_for_an_operator(database)),
    },
    Proof {
        number: 46,
        name: "no_payment_passes_a_failure_that_holds_its_stream_and_none_waits_for_ever",
        promise: "The same holds while workers claim, producers enqueue and operators release at the same time, and every payment is \
                  dispatched in the end.",
        run: |database| Box::pin(held_streams_races::keep_the_order(database)),
    },
    Proof {
        number: 47,
        name: "a_rail_with_a_rate_limit_grants_no_more_leases_than_its_rate_and_one_burst",
        promise: "Over any time T all claims on a rail with max_per_second together grant at most the rate times T and a burst of one second, \
                  whatever the clock does, and no token is lost.",
        run: |database| Box::pin(rate_limit::is_kept(database)),
    },
    Proof {
        number: 48,
        name: "a_payment_that_the_rail_has_accepted_is_never_sent_again",
        promise: "Once the rail has accepted a payment, every worker is told to inquire only: whatever a worker reports, if it dies, under another \
                  policy, endpoint or epoch. The inquiries are due at confirm_every_seconds; at max_attempts its outcome is unknown.",
        run: |database| Box::pin(confirmations::accepted_is_not_sent(database)),
    },
    Proof {
        number: 49,
        name: "a_confirmation_settles_a_payment_once_whatever_it_races_with",
        promise: "A confirmation of the rail settles a payment that awaits it, has an unknown outcome or is still leased. Of a confirmation and a \
                  completion, a claim, a repair or another confirmation at the same time one ends the payment; the ledger has one end.",
        run: |database| Box::pin(confirmations::settle_once(database)),
    },
    Proof {
        number: 50,
        name: "a_confirmation_that_contradicts_what_is_known_changes_nothing_and_is_kept",
        promise: "A confirmation is refused and kept if the payment ended otherwise or with an unknown outcome, was never sent, may be at another bank, \
                  or is not known. The same news again changes nothing, and a message about a failure cannot settle its redrive.",
        run: |database| Box::pin(confirmations::contradictions_are_kept(database)),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_a_proof_is_its_failure() {
        let running: ProofFuture<'_> = Box::pin(async {
            tokio::task::yield_now().await;
            panic!("of {}", 1)
        });
        let failure = catch_panic("A promise.", running).await.unwrap_err();
        assert_eq!(
            (failure.tried.as_str(), failure.happened.as_str()),
            ("A promise.", "the proof panicked: of 1")
        );
    }
}
