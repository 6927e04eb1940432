//! What must hold in every state, and what must happen in some.

use stateright::Property;
use symphony_testkit::protocol::rules::Ending;

use crate::model::Protocol;
use crate::scenario::Replication;
use crate::state::{PAYMENTS, State, Step};

pub(crate) const EXECUTED_ONCE: &str = "no endpoint executes a payment twice";
pub(crate) const EXECUTED_AT_ONE_ENDPOINT: &str = "no payment is executed at two endpoints";
pub(crate) const NOTHING_LOST: &str = "nothing committed is lost within an epoch";
pub(crate) const IN_ORDER: &str = "an ordered rail executes in order";
pub(crate) const LEASE_ACCOUNTED: &str = "every lease is live, released or has exactly one ledger row";
pub(crate) const ONE_END: &str = "a payment ends once, and nothing follows";
pub(crate) const RESULT_UNDER_LEASE: &str = "a result is recorded under its own live lease only";
pub(crate) const DISPATCHED_IS_TRUE: &str = "what is DISPATCHED was executed";
pub(crate) const NOT_PAID_IS_TRUE: &str = "what failed with a known outcome was not executed";
pub(crate) const EVERY_ROW_ENDS: &str = "from every state, every payment can end without a further fault";
pub(crate) const LEASE_NEVER_LOST: &str = "with a synchronous standby no worker has a lease that history lost";
pub(crate) const ACCEPTED_NOT_SENT: &str = "a payment that the bank has accepted is not sent again";
pub(crate) const PROBE_NOT_WASTED: &str = "a probe never takes a failed payment while another is due";

/// The properties of a scenario, with the examples that show that the search reaches what it is about.
pub(crate) fn all(model: &Protocol) -> Vec<Property<Protocol>> {
    let scenario = &model.scenario;
    let mut properties = vec![
        Property::always(EXECUTED_ONCE, |model: &Protocol, state: &State| {
            (0..PAYMENTS).all(|payment| {
                let once = state.endpoints.iter().all(|endpoint| endpoint.keys[payment].executed <= 1);
                // While the bank remembers, a late request does no harm.
                once || state.memory_elapsed[payment] && model.excuses(state, payment)
            })
        }),
        Property::always(EXECUTED_AT_ONE_ENDPOINT, |model: &Protocol, state: &State| {
            (0..PAYMENTS).all(|payment| {
                let places = state.endpoints.iter().filter(|endpoint| endpoint.keys[payment].executed > 0).count();
                places <= 1 || model.excuses(state, payment)
            })
        }),
        Property::always(NOTHING_LOST, nothing_is_lost),
        Property::always(IN_ORDER, |model: &Protocol, state: &State| {
            !state.witness.out_of_order && (model.late_requests_are_excused || !state.witness.out_of_order_late)
        }),
        Property::always(LEASE_ACCOUNTED, |_, state: &State| every_lease_is_accounted_for(state)),
        Property::always(ONE_END, |_, state: &State| {
            state.db.payments.iter().all(|payment| {
                let end = payment.ledger.iter().position(|attempt| attempt.past.ending.is_terminal());
                end.is_none_or(|end| end + 1 == payment.ledger.len() && payment.pending.is_none())
            })
        }),
        Property::always(RESULT_UNDER_LEASE, |_, state: &State| {
            state.db.payments.iter().flat_map(|payment| &payment.ledger).all(|attempt| {
                // Only the database itself ends a lease that has expired.
                attempt.lease == attempt.reported_under && (!attempt.expired || attempt.past.ending.is_unknown())
            })
        }),
        Property::always(DISPATCHED_IS_TRUE, |_, state: &State| {
            (0..PAYMENTS).all(|payment| {
                state.db.payments[payment].terminal() != Some(Ending::Dispatched) || state.executed(payment) > 0
            })
        }),
        Property::always(NOT_PAID_IS_TRUE, |model: &Protocol, state: &State| {
            (0..PAYMENTS).all(|payment| {
                state.db.payments[payment].terminal() != Some(Ending::NotPaid)
                    || state.executed(payment) == 0
                    || model.excuses(state, payment)
            })
        }),
        Property::always(EVERY_ROW_ENDS, |model: &Protocol, state: &State| model.every_payment_can_end(state)),
        Property::sometimes("a payment is dispatched", |_, state: &State| ends(state, Ending::Dispatched)),
        Property::sometimes("a payment waits for an operator", |_, state: &State| ends(state, Ending::Stopped)),
    ];
    if scenario.failover == Some(Replication::Synchronous) {
        properties.push(Property::always(LEASE_NEVER_LOST, |_, state: &State| {
            state.witness.leases_known_to_workers.is_subset(state.db.granted)
        }));
    }
    if scenario.failover.is_some() {
        properties.push(Property::sometimes("a failover loses a lease", |_, state: &State| {
            state.db.epoch > 1 && state.db.granted.len() < u32::from(state.leases_granted)
        }));
    }
    if scenario.poison {
        properties.push(Property::always(PROBE_NOT_WASTED, |_, state: &State| !state.witness.probe_wasted));
    }
    if scenario.bank_accepts {
        properties.push(Property::always(ACCEPTED_NOT_SENT, |_, state: &State| {
            state.workers.iter().filter_map(|worker| worker.task.as_ref()).all(|task| {
                let ledger = &state.db.payments[task.payment].ledger;
                // A worker whose lease is over may have begun before the acceptance was recorded.
                let current = state.db.lease(task.payment).is_some_and(|lease| lease.token == task.lease);
                let accepted = ledger.iter().any(|attempt| attempt.past.ending == Ending::Accepted);
                !(current && accepted && matches!(task.step, Step::Sending(_)))
            })
        }));
        properties.push(Property::sometimes(
            "a callback settles a payment that no worker holds",
            |_, state: &State| {
                state.db.payments.iter().flat_map(|payment| &payment.ledger).any(|attempt| attempt.lease == 0)
            },
        ));
    }
    if scenario.bank_forgets {
        properties.push(Property::sometimes(
            "what was executed and forgotten waits for an operator",
            |_, state: &State| {
                (0..PAYMENTS).any(|payment| {
                    state.executed(payment) == 1
                        && state.memory_elapsed[payment]
                        && state.db.payments[payment].terminal() == Some(Ending::Stopped)
                })
            },
        ));
    }
    properties
}

fn ends(state: &State, ending: Ending) -> bool {
    state.db.payments.iter().any(|payment| payment.terminal() == Some(ending))
}

fn nothing_is_lost(model: &Protocol, state: &State) -> bool {
    let synchronous = model.scenario.failover == Some(Replication::Synchronous);
    let payments = state.db.payments.iter().zip(state.witness.acknowledged);
    payments.into_iter().all(|(payment, acknowledged)| {
        let kept = acknowledged.is_none_or(|epoch| payment.committed || epoch < state.db.epoch && !synchronous);
        kept && (!payment.committed || payment.pending.is_some() != payment.terminal().is_some())
    })
}

fn every_lease_is_accounted_for(state: &State) -> bool {
    state.db.granted.iter().all(|lease| {
        let live =
            (0..PAYMENTS).filter(|payment| state.db.lease(*payment).is_some_and(|held| held.token == lease));
        let rows = state.db.payments.iter().flat_map(|payment| &payment.ledger).filter(|row| row.lease == lease);
        live.count() + rows.count() + usize::from(state.db.released.contains(lease)) == 1
    })
}
