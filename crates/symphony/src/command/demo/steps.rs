//! The steps, in the order in which a newcomer should see them.

use std::time::{Duration, Instant};

use serde_json::json;
use symphony_outbox::{
    BatchSize, OutboxId, WorkerId,
    error::{CompleteError, EnqueueError, OperateError},
    payment::{
        AttemptState, Completion, Instruction, OUTCOME_UNKNOWN, Outcome, RailAnswer, RailPolicy, Reason,
        Resolution,
        operator::{self, Warrant},
        producer, reading,
        worker::{self, Claimed},
    },
};
use symphony_proof::shop::{self, DUTY, WORKERS};
use tokio_postgres::Client;

use super::{
    cast::{Cast, Staff},
    walk::Walk,
};
use crate::{
    command::inspect,
    failure::{Failure, in_words},
};

const LONG: Duration = Duration::from_secs(60);
/// The shortest that the database grants: the walk waits until it is over.
const SHORT: Duration = Duration::from_secs(1);

/// Every step.
pub(super) async fn all(walk: &mut Walk, cast: &mut Cast) -> Result<(), Failure> {
    let differences = cast.install().await?;
    walk.show(
        differences == 0,
        "Installed Symphony and verified it: every table, function and right is as built.",
        "",
    )?;
    let mut staff = cast.open().await?;
    walk.say(
        "Opened a shop: a table of orders, and logins that hold one role each (till, worker_a, worker_b, ana).",
    )?;
    register_a_rail(walk, &staff).await?;
    enqueue_with_the_business(walk, &mut staff).await?;
    a_late_worker(walk, &staff).await?;
    an_unknown_outcome(walk, &mut staff, &cast.superuser).await?;
    a_retry(walk, &mut staff).await?;
    tell_the_story(walk, &staff).await?;
    audit(walk, cast).await
}

async fn register_a_rail(walk: &mut Walk, staff: &Staff) -> Result<(), Failure> {
    let policy = RailPolicy { max_attempts: Some(5), ..RailPolicy::default() };
    let rail = operator::set_rail(&staff.duty, "sepa", &policy, because("first rail of the shop")).await?;
    walk.show(
        rail.max_attempts == 5 && !rail.paused,
        "Ana registered the rail sepa: at most 5 attempts. A rail that nobody registered takes no payment.",
        "",
    )
}

async fn enqueue_with_the_business(walk: &mut Walk, staff: &mut Staff) -> Result<(), Failure> {
    let order = payment("order-1", "120.00");
    let transaction = staff.till.transaction().await?;
    shop::place_order(&transaction, "order-1", "120.00").await?;
    producer::enqueue(&transaction, &order).await?;
    transaction.rollback().await?;
    let left = reading::status(&staff.duty).await?;
    walk.show(
        left.due == 0,
        "The till wrote an order and enqueued its payment in one transaction, then rolled back: neither is there.",
        "",
    )?;

    let first = place(staff, "order-1", "120.00").await?;
    walk.show(
        first.sequence_id == 1 && !first.replayed,
        "The same again, committed: the order and its payment exist together.",
        &format!("outbox {}, sequence {}, replayed {}", first.outbox_id, first.sequence_id, first.replayed),
    )?;

    let again = producer::enqueue(&staff.till, &order).await?;
    walk.show(
        again.outbox_id == first.outbox_id && again.replayed,
        "The till was not sure and enqueued it once more with the same key: a replay, no second payment.",
        &format!("outbox {}, sequence {}, replayed {}", again.outbox_id, again.sequence_id, again.replayed),
    )?;

    let other = Instruction { payload: json!({ "amount": "999.00" }).into(), ..order };
    let refused = producer::enqueue(&staff.till, &other).await;
    walk.show(
        matches!(refused, Err(EnqueueError::IdempotencyConflict(_))),
        "The same key with another amount is refused: it would be two payments under one name.",
        &match &refused {
            Err(EnqueueError::IdempotencyConflict(report)) => in_words(report),
            other => format!("{other:?}"),
        },
    )
}

async fn a_late_worker(walk: &mut Walk, staff: &Staff) -> Result<(), Failure> {
    let [a, b] = names();
    let claimed = claim_one(&staff.workers[0], &a, SHORT).await?;
    walk.show(
        claimed.instruction_id == "order-1",
        "worker_a claimed the payment under a lease of one second, and went silent.",
        &format!("instruction {}, attempt {}", claimed.instruction_id, claimed.attempt_count + 1),
    )?;

    let taken_over = claim_one(&staff.workers[1], &b, LONG).await?;
    walk.show(
        taken_over.outbox_id == claimed.outbox_id && taken_over.outcome_unknown,
        "The lease ran out, and worker_b claimed the same payment. It is told that nobody knows how the last attempt \
         ended,\n    so it asks the rail before it pays.",
        "",
    )?;

    let late = worker::complete(&staff.workers[0], &a, &dispatched(&claimed)).await;
    walk.show(
        matches!(late, Err(CompleteError::LeaseLost(_))),
        "worker_a woke up and reported its outcome: refused, its lease is lost. It cannot write over worker_b.",
        &match &late {
            Err(CompleteError::LeaseLost(report)) => in_words(report),
            other => format!("{other:?}"),
        },
    )?;

    let done = worker::complete(&staff.workers[1], &b, &dispatched(&taken_over)).await?;
    walk.show(
        done.state == AttemptState::Dispatched && done.attempt_no == 2,
        "worker_b completed it. The ledger has both attempts, and the payment has ended.",
        &format!("attempt {}: {}", done.attempt_no, done.state),
    )
}

async fn an_unknown_outcome(walk: &mut Walk, staff: &mut Staff, superuser: &Client) -> Result<(), Failure> {
    let [a, _] = names();
    let order = place(staff, "order-2", "75.50").await?;
    let claimed = claim_one(&staff.workers[0], &a, LONG).await?;
    let reason = Reason { code: OUTCOME_UNKNOWN.into(), message: Some("the rail did not answer".into()) };
    let outcome = Outcome::Failed { reason, rail: RailAnswer::default() };
    let done = worker::complete(&staff.workers[0], &a, &completion(&claimed, outcome)).await?;
    let dead = reading::dead_letters(&staff.duty, BatchSize::MOST).await?;
    walk.show(
        done.state == AttemptState::Failed && dead.len() == 1 && dead.iter().all(|letter| letter.outcome_unknown),
        "A second payment, and the rail's answer was lost: it may have been paid. It goes to people as a dead letter.",
        &format!("outbox {}, error {OUTCOME_UNKNOWN}", order.outbox_id),
    )?;

    let rewritten = shop::rewrite_history(superuser).await;
    let said = rewritten.as_ref().err().and_then(tokio_postgres::Error::as_db_error);
    walk.show(
        said.is_some_and(|said| said.code().code() == "P0001"),
        "Somebody with every right tried to change the ledger: refused, it is only ever added to.",
        &said.map_or_else(
            || format!("{rewritten:?}"),
            |said| format!("{} [SQLSTATE {}]", said.message(), said.code().code()),
        ),
    )?;

    let refused = operator::redrive(&staff.duty, order.outbox_id, because("try again")).await;
    walk.show(
        matches!(refused, Err(OperateError::InvalidState(_))),
        "Ana wants to try it again: refused while nobody knows whether it was paid.",
        &match &refused {
            Err(OperateError::InvalidState(report)) => in_words(report),
            other => format!("{other:?}"),
        },
    )?;

    let found_out = because("the bank's statement of today does not have it");
    operator::resolve(&staff.duty, order.outbox_id, Resolution::NotPaid, found_out).await?;
    let redriven = operator::redrive(&staff.duty, order.outbox_id, because("not paid, so pay it")).await?;
    walk.show(
        redriven.outbox_id != order.outbox_id,
        "She looked it up and resolved it as NOT_PAID, with the evidence. Now it is redriven, under the same key.",
        &format!("new outbox {}, sequence {}", redriven.outbox_id, redriven.sequence_id),
    )?;

    let claimed = claim_one(&staff.workers[0], &a, LONG).await?;
    let done = worker::complete(&staff.workers[0], &a, &dispatched(&claimed)).await?;
    walk.show(
        claimed.outbox_id == redriven.outbox_id && done.state == AttemptState::Dispatched,
        "worker_a paid it.",
        &format!("attempt {} of the new outbox: {}", done.attempt_no, done.state),
    )
}

async fn a_retry(walk: &mut Walk, staff: &mut Staff) -> Result<(), Failure> {
    let [_, b] = names();
    place(staff, "order-3", "9.99").await?;
    let claimed = claim_one(&staff.workers[1], &b, LONG).await?;
    let reason = Reason { code: "RAIL_BUSY".into(), message: Some("come back in an hour".into()) };
    let outcome =
        Outcome::Retryable { reason, rail: RailAnswer::default(), delay: Some(Duration::from_secs(3_600)) };
    let done = worker::complete(&staff.workers[1], &b, &completion(&claimed, outcome)).await?;
    walk.show(
        done.state == AttemptState::Retryable && done.next_attempt_at.is_some(),
        "A third payment, and the rail said to come back in an hour: it is scheduled, not lost.",
        "",
    )
}

async fn tell_the_story(walk: &mut Walk, staff: &Staff) -> Result<(), Failure> {
    let story = inspect::read(&staff.duty, "order-2").await?;
    let text = story.as_ref().map(inspect::text).unwrap_or_default();
    walk.show(story.is_some(), "The story of the second payment, as `symphony inspect order-2` tells it:", &text)
}

async fn audit(walk: &mut Walk, cast: &mut Cast) -> Result<(), Failure> {
    let counted = shop::audit(&cast.superuser).await?;
    let shop::Audit { orders, enqueued, dispatched, failed, pending, ended_twice, paid_twice } = counted;
    walk.show(
        counted.adds_up() && orders == 3 && (enqueued, dispatched, failed, pending) == (4, 2, 1, 1),
        "An auditor counts: nothing is lost, nothing ended twice, nothing was paid twice.",
        &format!(
            "{orders} orders; {enqueued} enqueued = {dispatched} dispatched + {failed} failed + {pending} pending; \
             {ended_twice} ended twice, {paid_twice} paid twice"
        ),
    )?;
    let differences = cast.verify().await?;
    walk.show(differences == 0, "Verified the schema once more: no difference.", "")
}

/// Writes an order and enqueues its payment, in one transaction.
async fn place(staff: &mut Staff, order: &str, amount: &str) -> Result<Placed, Failure> {
    let transaction = staff.till.transaction().await?;
    shop::place_order(&transaction, order, amount).await?;
    let enqueued = producer::enqueue(&transaction, &payment(order, amount)).await?;
    transaction.commit().await?;
    Ok(Placed { outbox_id: enqueued.outbox_id, sequence_id: enqueued.sequence_id, replayed: enqueued.replayed })
}

struct Placed {
    outbox_id: OutboxId,
    sequence_id: i64,
    replayed: bool,
}

fn payment(order: &str, amount: &str) -> Instruction {
    Instruction {
        instruction_id: order.to_owned(),
        participant_id: "acme".to_owned(),
        idempotency_key: format!("{order}/pay"),
        rail_type: "sepa".to_owned(),
        payload: json!({ "amount": amount, "currency": "EUR" }).into(),
    }
}

/// Claims the next payment; one that is under a short lease is waited for.
async fn claim_one(session: &Client, name: &WorkerId, lease: Duration) -> Result<Claimed, Failure> {
    let patience = Instant::now() + 10 * SHORT;
    while Instant::now() < patience {
        if let Some(claimed) = worker::claim(session, name, BatchSize::ONE, lease).await?.pop() {
            return Ok(claimed);
        }
        tokio::time::sleep(SHORT / 20).await;
    }
    Err(Failure::no(format!("{name} found nothing to claim")))
}

fn dispatched(claimed: &Claimed) -> Completion {
    let rail = RailAnswer { reference: Some(format!("sepa-{}", claimed.sequence_id)), code: Some("ACSC".into()) };
    completion(claimed, Outcome::Dispatched { rail })
}

fn completion(claimed: &Claimed, outcome: Outcome) -> Completion {
    Completion { lease: claimed.lease(), outcome, latency: Some(Duration::from_millis(42)) }
}

fn names() -> [WorkerId; 2] {
    WORKERS.map(WorkerId::from)
}

fn because(reason: &str) -> Warrant<'_> {
    Warrant { actor: DUTY, reason }
}
