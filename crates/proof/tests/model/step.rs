//! What a generated sequence is made of.
//!
//! A step says "the third live lease" rather than its number, so that a sequence without some of its steps is still
//! valid. This lets proptest shrink a failure to a few steps.

use proptest::prelude::*;

use super::call::RAILS;
use super::reference::Policy;
use super::transactions::SESSIONS;

/// A sequence, and the rails it starts from.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    pub(crate) rails: Vec<Policy>,
    pub(crate) steps: Vec<(usize, Step)>,
}

/// One of several rows, by its position when the step runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) place: usize,
    /// Among those on which the step can succeed; else among all.
    pub(crate) apt: bool,
}

/// What is enqueued.
#[derive(Clone, Debug)]
pub(crate) enum EnqueueChoice {
    /// Under a key of its own.
    New { participant: usize, rail: usize, payload: usize },
    /// An earlier instruction again, with a variation.
    Again { place: usize, variation: Variation },
}

/// How something sent again differs from what was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Variation {
    Same,
    Participant,
    Rail,
    Payload,
    UnknownRail,
    Malformed,
}

/// Which lease a call passes, and whether its token and worker are right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseChoice {
    pub(crate) lease: Pick,
    /// A token that was never granted.
    pub(crate) forged: bool,
    /// By a worker without the lease.
    pub(crate) other_worker: bool,
}

/// The reported outcome of an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutcomeChoice {
    pub(crate) show: LeaseChoice,
    pub(crate) state: &'static str,
    pub(crate) error_code: Option<&'static str>,
    pub(crate) delay_seconds: Option<i32>,
}

/// One step of a sequence.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Begin,
    Commit,
    RollBack,
    Enqueue(EnqueueChoice),
    EnqueueBatch(Vec<EnqueueChoice>),
    Claim {
        worker: usize,
        batch: i32,
        lease_seconds: i32,
    },
    Complete(OutcomeChoice),
    CompleteBatch(Vec<OutcomeChoice>),
    Renew {
        shows: Vec<LeaseChoice>,
        seconds: i32,
    },
    Release {
        shows: Vec<LeaseChoice>,
        delay_seconds: Option<i32>,
    },
    Repair {
        worker: usize,
        batch: i32,
    },
    Redrive(Pick),
    Resolve(Pick, &'static str),
    SetRail(usize, Policy),
    Pause(usize),
    Resume(usize),
    Expire(Pick),
    MakeDue(Pick),
    Miscount(Pick),
    /// Compares everything, not the queue alone.
    Audit,
}

/// Sequences of up to this many steps.
pub(crate) fn sequences(steps: usize) -> impl Strategy<Value = Sequence> {
    let step = (0..SESSIONS, step());
    (prop::collection::vec(policy(), RAILS), prop::collection::vec(step, 1..=steps))
        .prop_map(|(rails, steps)| Sequence { rails, steps })
}

fn step() -> impl Strategy<Value = Step> {
    let seconds = 600..3600;
    prop_oneof![
        5 => Just(Step::Begin),
        5 => Just(Step::Commit),
        2 => Just(Step::RollBack),
        14 => order().prop_map(Step::Enqueue),
        5 => prop::collection::vec(order(), 1..5).prop_map(Step::EnqueueBatch),
        20 => (0..2_usize, 1..5, seconds.clone())
            .prop_map(|(worker, batch, lease_seconds)| Step::Claim { worker, batch, lease_seconds }),
        16 => outcome_choice().prop_map(Step::Complete),
        8 => prop::collection::vec(outcome_choice(), 1..5).prop_map(Step::CompleteBatch),
        3 => (prop::collection::vec(show(), 1..4), seconds).prop_map(|(shows, seconds)| Step::Renew { shows, seconds }),
        4 => (prop::collection::vec(show(), 1..4), prop::option::of(prop_oneof![Just(0), Just(900)]))
            .prop_map(|(shows, delay_seconds)| Step::Release { shows, delay_seconds }),
        4 => (0..2_usize, 1..4).prop_map(|(worker, batch)| Step::Repair { worker, batch }),
        7 => pick().prop_map(Step::Redrive),
        4 => (pick(), prop::sample::select(vec!["PAID", "NOT_PAID", "NOT_PAID", "SKIPPED"]))
            .prop_map(|(pick, resolution)| Step::Resolve(pick, resolution)),
        5 => (0..RAILS, policy()).prop_map(|(rail, policy)| Step::SetRail(rail, policy)),
        2 => (0..RAILS).prop_map(Step::Pause),
        3 => (0..RAILS).prop_map(Step::Resume),
        9 => pick().prop_map(Step::Expire),
        6 => pick().prop_map(Step::MakeDue),
        2 => pick().prop_map(Step::Miscount),
        1 => Just(Step::Audit),
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    let cap = prop_oneof![Just(None), (1..4).prop_map(Some)];
    (1..5, 300..400, 0..900, any::<bool>(), cap).prop_map(|(max_attempts, base, more, ordered, max_in_flight)| {
        Policy {
            max_attempts,
            backoff_base_seconds: base,
            backoff_cap_seconds: base + more,
            ordered,
            max_in_flight,
            paused: false,
        }
    })
}

fn pick() -> impl Strategy<Value = Pick> {
    (0..64_usize, prop::bool::weighted(0.85)).prop_map(|(place, apt)| Pick { place, apt })
}

fn order() -> impl Strategy<Value = EnqueueChoice> {
    // One participant gets most of it, so that there is something to keep in order.
    let participant = prop_oneof![3 => Just(0_usize), 1 => Just(1_usize)];
    let variation = prop_oneof![
        10 => Just(Variation::Same),
        1 => Just(Variation::Participant),
        1 => Just(Variation::Rail),
        1 => Just(Variation::Payload),
        1 => Just(Variation::UnknownRail),
        1 => Just(Variation::Malformed),
    ];
    prop_oneof![
        4 => (participant, 0..RAILS, 0..3_usize)
            .prop_map(|(participant, rail, payload)| EnqueueChoice::New { participant, rail, payload }),
        2 => (0..64_usize, variation).prop_map(|(place, variation)| EnqueueChoice::Again { place, variation }),
    ]
}

fn show() -> impl Strategy<Value = LeaseChoice> {
    (pick(), prop::bool::weighted(0.08), prop::bool::weighted(0.08))
        .prop_map(|(lease, forged, other_worker)| LeaseChoice { lease, forged, other_worker })
}

fn outcome_choice() -> impl Strategy<Value = OutcomeChoice> {
    let state = prop_oneof![
        6 => Just("DISPATCHED"),
        5 => Just("FAILED"),
        8 => Just("RETRYABLE"),
        1 => Just("ZOMBIE_REQUEUE"),
    ];
    let code =
        prop::sample::select(vec![None, Some("REJECTED"), Some("OUTCOME_UNKNOWN"), Some("AWAITING_CONFIRMATION")]);
    let delay = prop_oneof![8 => Just(None), 8 => Just(Some(0)), 4 => Just(Some(900)), 1 => Just(Some(-1))];
    (show(), state, code, delay).prop_map(|(show, state, error_code, delay_seconds)| OutcomeChoice {
        show,
        state,
        error_code,
        delay_seconds,
    })
}
