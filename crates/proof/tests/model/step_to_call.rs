//! Turns a step into a concrete call, by the state that the session sees.

use super::call::{Call, Form, Instruction, LeaseRef, Outcome, RAILS};
use super::reference::{AttemptState, LeaseNo, Micros, Outbox, OutboxNo, State};
use super::step::{EnqueueChoice, LeaseChoice, OutcomeChoice, Pick, Step, Variation};

/// What was ever sent, whether it was committed or not.
#[derive(Debug, Default)]
pub(crate) struct Sent(Vec<Instruction>);

/// The name of a worker.
pub(crate) fn worker(no: usize) -> String {
    format!("worker-{no}")
}

/// The call of a step, or `None` without a row that it could apply to.
pub(crate) fn call(step: &Step, seen: &State, in_transaction: bool, now: Micros, sent: &mut Sent) -> Option<Call> {
    let shown = |shows: &[LeaseChoice]| -> Option<(String, Vec<LeaseRef>)> {
        let shown: Vec<_> = shows.iter().filter_map(|show| hold(*show, seen, now)).collect();
        let worker = shown.first()?.0.clone();
        Some((worker, shown.into_iter().map(|(_, hold)| hold).collect()))
    };
    let completion = |form, sayings: &[OutcomeChoice]| -> Option<Call> {
        let output: Vec<_> =
            sayings.iter().filter_map(|outcome_choice| outcome(*outcome_choice, seen, now)).collect();
        let worker = output.first()?.0.clone();
        Some(Call::Complete { form, worker, outcomes: output.into_iter().map(|(_, outcome)| outcome).collect() })
    };
    let failed = |outbox: &Outbox| outbox.ended_as() == Some(AttemptState::Failed);
    Some(match step {
        Step::Begin if in_transaction => return None,
        Step::Commit | Step::RollBack if !in_transaction => return None,
        Step::Begin => Call::Begin,
        Step::Commit => Call::Commit,
        Step::RollBack => Call::RollBack,
        Step::Enqueue(order) => Call::Enqueue { form: Form::Single, given: vec![sent.instruction(order)?] },
        Step::EnqueueBatch(orders) => {
            let given: Vec<_> = orders.iter().filter_map(|order| sent.instruction(order)).collect();
            if given.is_empty() {
                return None;
            }
            Call::Enqueue { form: Form::Batch, given }
        }
        Step::Claim { worker: no, batch, lease_seconds } => {
            Call::Claim { worker: worker(*no), batch: *batch, lease_seconds: *lease_seconds }
        }
        Step::Complete(outcome_choice) => completion(Form::Single, &[*outcome_choice])?,
        Step::CompleteBatch(sayings) => completion(Form::Batch, sayings)?,
        Step::Renew { shows, seconds } => {
            let (worker, leases) = shown(shows)?;
            Call::Renew { worker, leases, seconds: *seconds }
        }
        Step::Release { shows, delay_seconds } => {
            let (worker, leases) = shown(shows)?;
            Call::Release { worker, leases, delay_seconds: *delay_seconds }
        }
        Step::Repair { worker: no, batch } => Call::Repair { worker: worker(*no), batch: *batch },
        Step::Redrive(pick) => Call::Redrive(outbox(*pick, seen, failed)?),
        Step::Resolve(pick, resolution) => Call::Resolve(outbox(*pick, seen, failed)?, resolution),
        Step::SetRail(rail, policy) => Call::SetRail(*rail, policy.clone()),
        Step::Pause(rail) => Call::Pause(*rail),
        Step::Resume(rail) => Call::Resume(*rail),
        Step::Expire(pick) => {
            let apt = Pick { apt: true, ..*pick };
            Call::Expire(outbox(apt, seen, |outbox| outbox.live_lease(now).is_some())?)
        }
        Step::MakeDue(pick) => {
            let unleased =
                |outbox: &Outbox| outbox.pending.as_ref().is_some_and(|pending| pending.lease.is_none());
            Call::MakeDue(outbox(Pick { apt: true, ..*pick }, seen, unleased)?)
        }
        Step::Miscount(pick) => {
            Call::Miscount(outbox(Pick { apt: true, ..*pick }, seen, |outbox| outbox.pending.is_some())?)
        }
        Step::Audit => return None,
    })
}

fn nth<T>(place: usize, among: impl Iterator<Item = T>) -> Option<T> {
    let mut among: Vec<_> = among.collect();
    (!among.is_empty()).then(|| among.swap_remove(place % among.len()))
}

/// The chosen outbox: a suitable one, or else any.
fn outbox(pick: Pick, seen: &State, apt: impl Fn(&Outbox) -> bool) -> Option<OutboxNo> {
    nth(pick.place, seen.outboxes.iter().filter(|(_, outbox)| !pick.apt || apt(outbox)).map(|(&no, _)| no))
}

/// The chosen lease as the call passes it, and its worker.
fn hold(show: LeaseChoice, seen: &State, now: Micros) -> Option<(String, LeaseRef)> {
    let live = |(_, outbox): (OutboxNo, &Outbox)| outbox.live_lease(now).map(|lease| lease.no);
    let any: LeaseNo = if show.lease.apt {
        nth(show.lease.place, seen.pending().filter_map(live))?
    } else {
        nth(show.lease.place, seen.granted.keys().copied())?
    };
    let (outbox, holder) = seen.granted.get(&any)?;
    let worker = if show.other_worker { "worker-else".to_owned() } else { holder.clone() };
    Some((worker, LeaseRef { outbox: *outbox, lease: (!show.forged).then_some(any) }))
}

fn outcome(outcome_choice: OutcomeChoice, seen: &State, now: Micros) -> Option<(String, Outcome)> {
    let (worker, hold) = hold(outcome_choice.show, seen, now)?;
    let OutcomeChoice { state, error_code, delay_seconds, .. } = outcome_choice;
    let error_code = error_code.filter(|_| state != "DISPATCHED");
    Some((worker, Outcome { hold, state, error_code, delay_seconds }))
}

impl Sent {
    fn instruction(&mut self, order: &EnqueueChoice) -> Option<Instruction> {
        match *order {
            EnqueueChoice::New { participant, rail, payload } => {
                let instruction = Instruction { key: self.0.len(), participant, rail, payload, malformed: false };
                self.0.push(instruction.clone());
                Some(instruction)
            }
            EnqueueChoice::Again { place, variation } => {
                let mut again = nth(place, self.0.iter())?.clone();
                match variation {
                    Variation::Same => {}
                    Variation::Participant => again.participant = 1 - again.participant,
                    Variation::Rail => again.rail = (again.rail + 1) % RAILS,
                    Variation::Payload => again.payload += 1,
                    Variation::UnknownRail => again.rail = RAILS,
                    Variation::Malformed => again.malformed = true,
                }
                Some(again)
            }
        }
    }
}
