//! Keeps what became of payments whose lease was lost, until the database has said whether it knows their outboxes.
//!
//! A failover or a restore can lose a payment that is at the bank. Then the completion is refused, or the lease cannot be
//! renewed and the dispatch is cancelled: what this process knows is the last evidence of the payment. So each such outcome is
//! reported, and the database keeps those of outboxes that it does not know; the rule is in `record_payment_orphan`. Almost all
//! others are leases that another worker has taken over, which is normal.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use symphony_db::WorkerId;
use symphony_db::connect::Session;
use symphony_db::payment::worker::{self, Identity, Orphan};
use symphony_db::payment::{Completion, OrphanKind};
use tokio::time::timeout;

use super::{Lease, PaymentOutcome, unknown_outcome};
use crate::lane::LaneError;
use crate::rail::Payment;
use crate::session_pool::SessionPool;

/// How many outcomes are kept while the database cannot be asked.
const MAX_KEPT: usize = 10_000;
/// How long the outcomes of one report may take. The rest waits for the next one.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// The outcomes to report, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    kept: Mutex<VecDeque<Orphan>>,
    reporting: tokio::sync::Mutex<()>,
}

/// What a payment was, for a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dispatched {
    identity: Identity,
    endpoint: Option<String>,
    /// The rail answered a first attempt as one that it had accepted before.
    pub(super) is_replayed_first_attempt: bool,
}

impl Dispatched {
    pub(super) fn new(payment: Payment, endpoint: Option<String>, replayed: bool) -> Self {
        let Payment { instruction_id, participant_id, idempotency_key, rail_type, attempt_count, .. } = payment;
        Self {
            identity: Identity { instruction_id, participant_id, idempotency_key, rail_type },
            endpoint,
            is_replayed_first_attempt: replayed && attempt_count == 0,
        }
    }
}

/// A payment that is at the bank. Dropped before its answer, because its lease was lost or this process stops, it is reported
/// with an unknown outcome.
#[derive(Debug)]
pub(super) struct AtTheBank<'a> {
    orphans: &'a Orphans,
    lease: Lease,
    payment: &'a Payment,
    endpoint: Option<&'a String>,
    is_answered: bool,
}

impl<'a> AtTheBank<'a> {
    pub(super) fn new(
        orphans: &'a Orphans,
        lease: Lease,
        payment: &'a Payment,
        endpoint: Option<&'a String>,
    ) -> Self {
        Self { orphans, lease, payment, endpoint, is_answered: false }
    }

    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for AtTheBank<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            let dispatched = Dispatched::new(self.payment.clone(), self.endpoint.cloned(), false);
            let outcome = PaymentOutcome {
                outcome: unknown_outcome::still_unknown("the dispatch was cancelled"),
                latency: None,
                run: None,
                dispatched: Some(Box::new(dispatched)),
            };
            self.orphans.keep(OrphanKind::UnknownOutbox, &self.lease, &outcome);
        }
    }
}

impl Orphans {
    /// Keeps an outcome for the next report.
    pub(super) fn keep(&self, kind: OrphanKind, lease: &Lease, outcome: &PaymentOutcome) {
        let PaymentOutcome { outcome, latency, dispatched, .. } = outcome;
        let completion = Completion { lease: lease.lease, outcome: outcome.clone(), latency: *latency };
        let orphan = Orphan {
            kind,
            completion,
            identity: dispatched.as_ref().map(|dispatched| dispatched.identity.clone()),
            endpoint: dispatched.as_ref().and_then(|dispatched| dispatched.endpoint.clone()),
            epoch: lease.epoch,
            claimed_at: Some(lease.claim.claimed_at),
        };
        let mut kept = self.kept();
        if kept.len() < MAX_KEPT {
            kept.push_back(orphan);
        } else {
            drop(kept);
            log_not_reported(&orphan, "too many wait for the database");
        }
    }

    /// Reports what is kept. What the database does not answer waits for the next report.
    pub(super) async fn report(&self, pool: &SessionPool, worker: &WorkerId) {
        if self.kept().is_empty() {
            return;
        }
        let Ok(_reporting) = self.reporting.try_lock() else { return };
        let report = async {
            // It leaves the queue after its answer: this future may be dropped at any await. Only this one takes from the front.
            while let Some(orphan) = self.first() {
                let record = async |session: &Session| worker::record_orphan(session, worker, &orphan).await;
                match pool.call(record).await {
                    Ok(recorded) => {
                        self.kept().pop_front();
                        if recorded {
                            log_recorded(&orphan);
                        }
                    }
                    Err(LaneError::Unavailable(_)) => return,
                    Err(LaneError::Refused(message)) => {
                        self.kept().pop_front();
                        log_not_reported(&orphan, &message);
                    }
                }
            }
        };
        // The next report continues.
        let _ = timeout(REPORT_TIMEOUT, report).await;
    }

    fn first(&self) -> Option<Orphan> {
        self.kept().front().cloned()
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Orphan>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process ends: its log is what is left.
impl Drop for Orphans {
    fn drop(&mut self) {
        for orphan in self.kept().drain(..) {
            log_not_reported(&orphan, "the relayer stopped before the database answered");
        }
    }
}

/// Logs the line that alert rules match. It contains ids, states and codes only.
fn log_recorded(orphan: &Orphan) {
    let Completion { lease, outcome, .. } = &orphan.completion;
    let identity = orphan.identity.as_ref();
    tracing::error!(
        event = "ORPHANED_OUTCOME",
        kind = orphan.kind.as_str(),
        outbox_id = %lease.outbox_id,
        instruction_id = identity.map(|payment| payment.instruction_id.as_str()),
        rail = identity.map(|payment| payment.rail_type.as_str()),
        state = outcome.state().as_str(),
        error_code = outcome.reason().map(|reason| reason.code.as_str()),
        rail_reference = outcome.rail().reference,
        "the bank has a payment whose history the database has lost"
    );
}

fn log_not_reported(orphan: &Orphan, why: &str) {
    let Completion { lease, outcome, .. } = &orphan.completion;
    let identity = orphan.identity.as_ref();
    tracing::warn!(
        kind = orphan.kind.as_str(),
        outbox_id = %lease.outbox_id,
        instruction_id = identity.map(|payment| payment.instruction_id.as_str()),
        rail = identity.map(|payment| payment.rail_type.as_str()),
        state = outcome.state().as_str(),
        rail_reference = outcome.rail().reference,
        why,
        "the lease of a payment was lost, and the database was not asked whether it knows the payment"
    );
}
