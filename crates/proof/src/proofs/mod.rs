//! The proofs: each tries to break one promise of the database, and says what it tried and what happened.
//!
//! They know the schema's contract and nothing of how it is kept. The statements here are attacks, or the moves that
//! the contract allows; time is moved by the owner, so nothing waits for a clock.
//!
//! # Layout
//!
//! - [`all`]: the list, by number; [`Proof::run`] runs one on a fresh database
//! - [`Evidence`], [`Step`], [`Failure`]: what a proof has to show
//! - `ledger`, `endings`, `conservation`, `story`: what is written stays, and adds up; `parents`, `replication`: whichever way it is reached
//! - `enqueue`, `keys`, `wakeup`, `sequences`: what a producer's transaction does, and does not
//! - `leases`, `races`, `ceiling`, `backoff`: who may act on a row, how often and when
//! - `order`, `handover`: ordered rails; `unknown`: outcomes that nobody knows; `rails`: pauses and caps
//! - `event`: the event lane, its contract and its claims; `metadata`: the metadata lane, its status machine and its claims
//! - `sizes`: how much a payload and a claim may hold
//! - `late_commit`: exports, and transactions that are open while they run
//! - `grants`, `planted`, `catalogue`: who may do what, whatever they plant
//! - `crew`, `clock`, `mix`, `signals`, `dice`: sessions, time that is moved, random work, how sessions meet, chance that
//!   can be repeated

mod backoff;
mod catalogue;
mod ceiling;
mod clock;
mod conservation;
mod crew;
mod dice;
mod endings;
mod enqueue;
mod event;
mod evidence;
mod grants;
mod handover;
mod keys;
mod late_commit;
mod leases;
mod ledger;
mod metadata;
mod mix;
mod order;
mod parents;
mod planted;
mod races;
mod rails;
mod replication;
mod sequences;
mod signals;
mod sizes;
mod story;
mod unknown;
mod wakeup;

use std::future;
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use crate::kit::scratch::Database;
pub use evidence::{Evidence, Failure, Step};

/// How long a proof may take. None comes near it; one that hangs has found something.
const LIMIT: Duration = Duration::from_secs(120);

type Running<'a> = Pin<Box<dyn Future<Output = Result<Evidence, Failure>> + Send + 'a>>;

/// One promise and the attempt to break it.
#[derive(Debug)]
pub struct Proof {
    /// Its number in the list of promises.
    pub number: u8,
    /// The fact that it shows, as the name of a test.
    pub name: &'static str,
    /// The promise, as a sentence.
    pub promise: &'static str,
    run: for<'a> fn(&'a Database) -> Running<'a>,
}

impl Proof {
    /// Tries to break the promise on a database that nobody else uses.
    pub async fn run(&self, database: &Database) -> Result<Evidence, Failure> {
        let attempt = caught(self.promise, (self.run)(database));
        tokio::time::timeout(LIMIT, attempt).await.unwrap_or_else(|_| {
            Err(Failure {
                tried: self.promise.to_owned(),
                expected: format!("an answer within {LIMIT:?}"),
                happened: "the proof did not end: sessions wait for each other".into(),
            })
        })
    }
}

/// A panic is a failure like others: whoever runs proofs has databases to remove afterwards.
async fn caught(promise: &str, mut running: Running<'_>) -> Result<Evidence, Failure> {
    future::poll_fn(|context| {
        // What a panic leaves half done is dropped, and never looked at again.
        let polled = panic::catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context)));
        polled.unwrap_or_else(|thrown| {
            let words = thrown.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| thrown.downcast_ref::<&str>().copied()).unwrap_or("it does not say why");
            Poll::Ready(Err(Failure {
                tried: promise.to_owned(),
                expected: "an answer".into(),
                happened: format!("the proof panicked: {words}"),
            }))
        })
    })
    .await
}

/// Proof 25, on both lanes that have claims of 5 minutes.
async fn claims_are_lost(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = evidence::Trial::default();
    event::claims::lost_is_lost(database, &mut trial).await?;
    metadata::claims::lost_is_lost(database, &mut trial).await?;
    Ok(trial.evidence())
}

/// Every proof, by number.
pub fn all() -> &'static [Proof] {
    &ALL
}

/// The proof of this name.
pub fn named(name: &str) -> Option<&'static Proof> {
    ALL.iter().find(|proof| proof.name == name)
}

static ALL: [Proof; 29] = [
    Proof {
        number: 1,
        name: "nobody_can_change_what_is_in_the_ledger",
        promise: "UPDATE, DELETE and TRUNCATE on the ledger are refused to everyone, the owner and a superuser \
                  included; the functions can still append to it.",
        run: |database| Box::pin(ledger::is_append_only(database)),
    },
    Proof {
        number: 2,
        name: "nobody_can_truncate_pending_or_change_what_identifies_a_row",
        promise: "Pending rows are never truncated away, and what identifies one never changes, whoever tries.",
        run: |database| Box::pin(ledger::pending_keeps_its_identity(database)),
    },
    Proof {
        number: 3,
        name: "an_outbox_has_each_attempt_number_once_and_ends_once",
        promise: "Two ledger rows never share an outbox and an attempt number, and no outbox has two terminal rows.",
        run: |database| Box::pin(endings::happen_once(database)),
    },
    Proof {
        number: 4,
        name: "every_lease_ever_granted_is_accounted_for",
        promise: "Leases granted are leases live, plus those given back, plus ledger rows, after any mix of moves.",
        run: |database| Box::pin(conservation::holds(database)),
    },
    Proof {
        number: 5,
        name: "folding_the_events_gives_the_present_state_of_every_outbox",
        promise: "The story told by payment_outbox_events, folded, is the present state of every outbox.",
        run: |database| Box::pin(story::folds(database)),
    },
    Proof {
        number: 6,
        name: "concurrent_enqueues_of_one_key_give_one_outbox",
        promise: "Any number of concurrent enqueues of one key give one outbox, one sequence number, and replays.",
        run: |database| Box::pin(enqueue::one_key_gives_one_outbox(database)),
    },
    Proof {
        number: 7,
        name: "a_key_cannot_be_reused_for_another_payment",
        promise: "The same key with another payload, participant or rail is refused, before and after its end.",
        run: |database| Box::pin(keys::cannot_be_reused(database)),
    },
    Proof {
        number: 8,
        name: "an_enqueue_that_is_rolled_back_leaves_nothing_and_wakes_nobody",
        promise: "Rolled back, an enqueue leaves no row, takes no number and wakes nobody.",
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
        promise: "Repair ends an expired lease with one ZOMBIE_REQUEUE; the row is due, unleased, its count never falls.",
        run: |database| Box::pin(leases::repair_makes_due(database)),
    },
    Proof {
        number: 11,
        name: "a_late_worker_cannot_complete_what_another_has_claimed",
        promise: "A worker whose lease was lost changes nothing; the one who holds the lease succeeds.",
        run: |database| Box::pin(leases::late_worker_is_refused(database)),
    },
    Proof {
        number: 12,
        name: "of_racing_completions_with_one_token_exactly_one_succeeds",
        promise: "However many complete one lease at once, one outcome is recorded and the others are refused.",
        run: |database| Box::pin(races::one_completion_wins(database)),
    },
    Proof {
        number: 13,
        name: "many_claimers_lease_no_row_twice_and_skip_none",
        promise: "Many claimers at once lease no row twice and leave none behind.",
        run: |database| Box::pin(races::claims_do_not_overlap(database)),
    },
    Proof {
        number: 14,
        name: "repairers_at_once_end_each_expired_lease_once",
        promise: "Several repairers at once write one ZOMBIE_REQUEUE per expired lease.",
        run: |database| Box::pin(races::repairs_do_not_overlap(database)),
    },
    Proof {
        number: 15,
        name: "at_the_ceiling_a_row_fails_for_good_and_goes_to_people",
        promise: "The last allowed RETRYABLE is FAILED with RETRIES_EXHAUSTED, a zombie at the ceiling FAILED with \
                  LEASE_EXPIRED, and an unknown outcome stays unknown.",
        run: |database| Box::pin(ceiling::ends_rows(database)),
    },
    Proof {
        number: 16,
        name: "backoff_is_deterministic_and_equals_the_policy",
        promise: "The delay before every attempt is the policy's, to the microsecond, unless the caller gave one.",
        run: |database| Box::pin(backoff::equals_the_policy(database)),
    },
    Proof {
        number: 17,
        name: "on_an_ordered_rail_nothing_overtakes_and_nothing_is_stranded",
        promise: "On an ordered rail nothing overtakes, through retries, zombies and concurrent enqueues; other \
                  participants are not held up, and nothing waits for ever.",
        run: |database| Box::pin(order::is_kept(database)),
    },
    Proof {
        number: 18,
        name: "an_unknown_outcome_is_not_tried_again_before_a_person_says_it_was_not_paid",
        promise: "A failure of unknown outcome is not redriven before it is resolved as NOT_PAID, nor ever after PAID; \
                  a redrive keeps the idempotency key.",
        run: |database| Box::pin(unknown::waits_for_a_person(database)),
    },
    Proof {
        number: 19,
        name: "a_paused_rail_and_a_rail_at_its_cap_hand_out_nothing_more",
        promise: "A paused rail and a rail at its cap hand out nothing more, over any number of workers.",
        run: |database| Box::pin(rails::hold_back(database)),
    },
    Proof {
        number: 20,
        name: "each_role_has_exactly_the_rights_of_the_contract",
        promise: "For every role and every object: exactly the rights in the table, each one tried.",
        run: |database| Box::pin(grants::are_exact(database)),
    },
    Proof {
        number: 21,
        name: "what_a_caller_plants_does_not_change_what_a_function_does",
        promise: "Tables, functions and operators planted by a caller do not change what a definer function does.",
        run: |database| Box::pin(planted::objects_are_ignored(database)),
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
        promise: "The event lane is its contract to the letter: signatures, columns, what is claimable, the delays, the \
                  refusals; a catalogue that drifts from it is found and named.",
        run: |database| Box::pin(event::contract_holds(database)),
    },
    Proof {
        number: 24,
        name: "an_entry_moves_along_the_five_arrows_and_no_other",
        promise: "Of all 25 pairs of statuses the database allows the five that Rust allows, to every role, the owner and a \
                  superuser; an entry begins as PENDING; what is PUBLISHED or DLQ does not change.",
        run: |database| Box::pin(metadata::machine_holds(database)),
    },
    Proof {
        number: 25,
        name: "a_worker_that_lost_its_claim_cannot_finish_the_entry",
        promise: "A worker whose claim on an event or an entry of metadata was taken over, repaired, ended or completed changes \
                  nothing, though the event contract has no token; the one that holds the claim succeeds.",
        run: |database| Box::pin(claims_are_lost(database)),
    },
    // 26 to 29 are about the relayer as a process; its own tests show them.
    Proof {
        number: 30,
        name: "what_is_append_only_cannot_be_changed_through_a_parent_table",
        promise: "UPDATE, DELETE, MERGE and TRUNCATE through a parent or partitioned table are refused for the ledger, the logs, events \
                  and metadata; pending cannot become a child, and nobody can DELETE from it what has not ended.",
        run: |database| Box::pin(parents::change_nothing(database)),
    },
    Proof {
        number: 31,
        name: "what_is_append_only_cannot_be_changed_by_a_subscription",
        promise: "The apply worker of a logical-replication subscription is refused what a session is: changes of the ledger, the logs, \
                  pending rows, events and metadata.",
        run: |database| Box::pin(replication::changes_nothing(database)),
    },
    Proof {
        number: 32,
        name: "a_compressed_payload_is_measured_by_what_it_holds",
        promise: "A payload is bounded by its uncompressed size and its depth, in every lane and whichever way it comes; one claim hands out at \
                  most 16 MiB, and at least one row.",
        run: |database| Box::pin(sizes::are_bounded(database)),
    },
    Proof {
        number: 33,
        name: "what_is_committed_after_an_export_is_in_the_next_one",
        promise: "An operation or a ledger row of a transaction that began before an export and committed after it is in exactly one \
                  export; while a transaction has written and stays open, an export waits, then refuses and names its session.",
        run: |database| Box::pin(late_commit::is_exported_once(database)),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_a_proof_is_its_failure() {
        let running: Running<'_> = Box::pin(async {
            tokio::task::yield_now().await;
            panic!("of {}", 1)
        });
        let failure = caught("A promise.", running).await.unwrap_err();
        assert_eq!(
            (failure.tried.as_str(), failure.happened.as_str()),
            ("A promise.", "the proof panicked: of 1")
        );
    }
}
