//! The model: which steps are possible in a state. What a step does is in [`crate::transition`].

use stateright::{Model, Property};
use symphony_testkit::protocol::rules::{self, FirstStep};

use crate::action::{Action, Reaction};
use crate::property;
use crate::scenario::{Replication, Scenario};
use crate::state::{Breaker, ENDPOINTS, Memory, State, Step, WORKERS};
use crate::variant::Variant;

/// The protocol in one scenario, with at most one rule broken.
#[derive(Clone, Debug)]
pub(crate) struct Protocol {
    pub(crate) scenario: Scenario,
    pub(crate) broken: Option<Variant>,
    /// Whether properties leave out what a request does that reaches the bank after its lease has ended.
    pub(crate) late_requests_are_excused: bool,
}

/// Steps from any state until every payment has ended, if no further fault happens.
const STEPS_TO_THE_END: usize = 80;

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::initial()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for worker in 0..WORKERS {
            match state.task(worker).map(|task| task.step) {
                None => self.idle_actions(state, worker, actions),
                Some(step) => self.task_actions(state, worker, step, actions),
            }
        }
        for payment in 0..self.scenario.payments {
            self.payment_actions(state, payment, actions);
        }
        match self.scenario.failover {
            Some(Replication::Asynchronous) if state.db.epoch == 1 && state.standby.is_none() => {
                actions.push(Action::CutStandby);
            }
            Some(Replication::Synchronous) if state.standby.is_some() => actions.push(Action::CatchUp),
            Some(Replication::Asynchronous | Replication::Synchronous) | None => {}
        }
        if state.db.epoch == 1 && state.standby.is_some() {
            actions.push(Action::Failover);
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.apply(&mut next, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        property::all(self)
    }
}

impl Protocol {
    /// The protocol as it is.
    pub(crate) fn correct(scenario: Scenario) -> Self {
        Self { scenario, broken: None, late_requests_are_excused: true }
    }

    pub(crate) fn is(&self, variant: Variant) -> bool {
        self.broken == Some(variant)
    }

    /// Whether what happened to a payment is the work of a late request.
    pub(crate) fn excuses(&self, state: &State, payment: usize) -> bool {
        self.late_requests_are_excused && state.witness.executed_late[payment] && !state.witness.sent_after_expiry
    }

    /// Whether the database can commit: with a synchronous standby behind, commits wait.
    fn commits(&self, state: &State) -> bool {
        self.scenario.failover != Some(Replication::Synchronous) || state.standby.is_none()
    }

    fn idle_actions(&self, state: &State, worker: usize, actions: &mut Vec<Action>) {
        if self.scenario.endpoint_moves && state.workers[worker].endpoint == 0 {
            actions.push(Action::Move { worker });
        }
        if state.workers[worker].breaker == Breaker::Open {
            actions.push(Action::EndPause { worker });
            return;
        }
        if !self.commits(state) {
            return;
        }
        for payment in (0..self.scenario.payments).filter(|payment| self.may_claim(state, worker, *payment)) {
            actions.push(Action::Claim { worker, payment });
            if self.scenario.failover == Some(Replication::Synchronous) && state.db.epoch == 1 {
                actions.push(Action::ClaimNotDurable { worker, payment });
            }
        }
        if self.scenario.repairs {
            for payment in 0..self.scenario.payments {
                if state.lease_has_expired(payment) == Some(true) {
                    actions.push(Action::FindExpired { worker, payment });
                }
            }
        }
    }

    /// Whether a claim of this worker may take the payment.
    fn may_claim(&self, state: &State, worker: usize, payment: usize) -> bool {
        let is_due = |payment: usize| {
            let row = state.db.payments[payment].pending.as_ref();
            row.is_some() && rules::is_claimable(state.lease_has_expired(payment))
        };
        let earlier_is_pending = state.db.payments[..payment].iter().any(|earlier| earlier.pending.is_some());
        let in_order =
            self.is(Variant::OrderIgnored) || rules::is_next_in_order(self.scenario.ordered, earlier_is_pending);
        let taken = self.is(Variant::ExpiredLeaseKept) && state.db.lease(payment).is_some();
        let probe = state.workers[worker].breaker != Breaker::HalfOpen
            || self.is(Variant::ProbeWithFailedRow)
            || rules::may_probe(
                state.db.payments[payment].has_failed(),
                self.fresh_payment_is_due(state, payment),
            );
        is_due(payment) && in_order && !taken && probe
    }

    /// Whether a payment other than this one is due and has not failed.
    pub(crate) fn fresh_payment_is_due(&self, state: &State, except: usize) -> bool {
        (0..self.scenario.payments).filter(|payment| *payment != except).any(|payment| {
            let row = &state.db.payments[payment];
            row.pending.as_ref().is_some_and(|pending| pending.lease.is_none()) && !row.has_failed()
        })
    }

    fn task_actions(&self, state: &State, worker: usize, step: Step, actions: &mut Vec<Action>) {
        let Some(task) = state.task(worker) else { return };
        let commits = self.commits(state);
        let held = self.holds_lease(state, task);
        if self.scenario.crashes {
            actions.push(Action::Crash { worker });
        }
        let over = state.over.contains(task.lease);
        let on_the_row = state.db.lease(task.payment).is_some_and(|lease| lease.token == task.lease);
        if !over && !on_the_row && step != Step::Repairing {
            actions.push(Action::RunOut { worker });
        }
        let on_time = !over || self.is(Variant::SendAfterExpiry);
        match step {
            Step::Claimed(first) => {
                if commits && (!held || state.db.released.len() < self.scenario.releases) {
                    actions.push(Action::Release { worker });
                }
                match first {
                    FirstStep::Send if on_time => actions.push(Action::Send { worker }),
                    FirstStep::Inquire | FirstStep::Confirm if held => {
                        actions.push(Action::Inquire { worker, answered: false });
                        if self.scenario.inquiries {
                            actions.push(Action::Inquire { worker, answered: true });
                        }
                    }
                    FirstStep::Stop => actions.push(Action::Stop { worker }),
                    FirstStep::Send | FirstStep::Inquire | FirstStep::Confirm => {}
                }
            }
            Step::MaySend(_) if on_time => actions.push(Action::Send { worker }),
            Step::MaySend(_) => actions.push(Action::Release { worker }),
            Step::Sending(_) => {
                for reaction in self.reactions(task.payment) {
                    actions.push(Action::Handle { worker, reaction, answer_arrives: true });
                    if reaction != Reaction::Defer && !self.scenario.poison {
                        actions.push(Action::Handle { worker, reaction, answer_arrives: false });
                    }
                }
                // A payment that fails for ever is enough there.
                if !self.scenario.poison {
                    actions.push(Action::GiveUp { worker });
                }
            }
            Step::Reporting(_) if commits => {
                actions.push(Action::Complete { worker, reply_lost: false });
                if self.scenario.lost_replies && held {
                    actions.push(Action::Complete { worker, reply_lost: true });
                }
                if self.is(Variant::ReleaseAfterSend) && state.db.released.len() < self.scenario.releases {
                    actions.push(Action::Release { worker });
                }
            }
            Step::Repairing if commits => actions.push(Action::Repair { worker }),
            Step::Reporting(_) | Step::Repairing => {}
        }
    }

    /// What the bank may do with a request. Of a poisoned scenario, payment 1 always fails, and payment 2 never.
    fn reactions(&self, payment: usize) -> impl Iterator<Item = Reaction> {
        let poison = self.scenario.poison;
        let executes = !poison || payment > 0;
        let accepts = self.scenario.bank_accepts;
        let refuses = self.scenario.bank_refuses && !poison;
        let defers = !poison || payment == 0;
        let possible = [
            (Reaction::Execute, executes && !accepts),
            (Reaction::Accept, accepts),
            (Reaction::Refuse, refuses),
            (Reaction::Defer, defers),
        ];
        possible.into_iter().filter_map(|(reaction, possible)| possible.then_some(reaction))
    }

    fn payment_actions(&self, state: &State, payment: usize, actions: &mut Vec<Action>) {
        let committed = state.db.payments[payment].committed;
        let next = state.db.payments[..payment].iter().all(|earlier| earlier.committed);
        // What a failover has lost is not enqueued again: the producer believes that it is there.
        if !committed && next && state.witness.acknowledged[payment].is_none() && self.commits(state) {
            actions.push(Action::Enqueue { payment });
        }
        if state.lease_has_expired(payment) == Some(false) {
            actions.push(Action::Expire { payment });
        }
        if self.scenario.bank_forgets && committed && !state.memory_elapsed[payment] {
            actions.push(Action::ElapseKeyMemory { payment });
        }
        for endpoint in 0..ENDPOINTS {
            let key = &state.endpoints[endpoint].keys[payment];
            if key.unattended > 0 {
                for reaction in self.reactions(payment) {
                    actions.push(Action::HandleLate { endpoint, payment, reaction });
                }
                actions.push(Action::LoseLate { endpoint, payment });
            }
            if key.memory == Memory::Accepted {
                for executes in [true, false] {
                    actions.push(Action::Settle { endpoint, payment, executes });
                }
            }
            let is_decided = matches!(key.memory, Memory::Executed | Memory::Refused);
            let is_pending = state.db.payments[payment].pending.is_some();
            if self.scenario.bank_accepts && is_decided && is_pending && self.commits(state) {
                actions.push(Action::Confirm { endpoint, payment });
            }
            if key.memory != Memory::Nothing && state.memory_elapsed[payment] && is_quiet(state, payment) {
                actions.push(Action::Forget { endpoint, payment });
            }
        }
    }

    /// Whether every payment of this state ends if workers and bank do their work and no further fault happens.
    pub(crate) fn every_payment_can_end(&self, state: &State) -> bool {
        let mut state = state.clone();
        let mut actions = Vec::new();
        for _ in 0..STEPS_TO_THE_END {
            if state.db.payments.iter().all(|payment| !payment.committed || payment.terminal().is_some()) {
                return true;
            }
            actions.clear();
            self.actions(&state, &mut actions);
            let next = actions.iter().filter_map(|action| Some((urgency(&state, *action)?, *action)));
            let Some((_, action)) = next.min_by_key(|(urgency, _)| *urgency) else { return false };
            self.apply(&mut state, action);
        }
        false
    }
}

/// Whether no request for the payment can reach the bank any more: a key memory is longer than a lease and a dispatch.
fn is_quiet(state: &State, payment: usize) -> bool {
    let tasks = state.workers.iter().filter_map(|worker| worker.task.as_ref());
    let waiting = tasks.filter(|task| task.payment == payment);
    waiting.into_iter().all(|task| state.over.contains(task.lease) && !matches!(task.step, Step::Sending(_)))
        && state.endpoints.iter().all(|endpoint| endpoint.keys[payment].unattended == 0)
}

/// In which order steps happen while nothing fails: work that has begun, then claims, then the leases of the dead.
fn urgency(state: &State, action: Action) -> Option<u8> {
    match action {
        Action::CatchUp
        | Action::Complete { reply_lost: false, .. }
        | Action::Repair { .. }
        | Action::Send { .. }
        | Action::Stop { .. }
        | Action::Inquire { answered: true, .. }
        | Action::Settle { executes: true, .. }
        | Action::Handle { reaction: Reaction::Execute | Reaction::Accept, answer_arrives: true, .. } => Some(0),
        // Without inquiries, or without a lease.
        Action::Inquire { .. } => Some(1),
        Action::Handle { answer_arrives: true, .. } => Some(1),
        Action::Release { worker } if state.task(worker).is_some_and(|task| state.over.contains(task.lease)) => {
            Some(1)
        }
        Action::Claim { .. } | Action::EndPause { .. } => Some(2),
        Action::RunOut { .. } | Action::Expire { .. } => Some(3),
        Action::Enqueue { .. }
        | Action::ClaimNotDurable { .. }
        | Action::Release { .. }
        | Action::Handle { .. }
        | Action::GiveUp { .. }
        | Action::HandleLate { .. }
        | Action::LoseLate { .. }
        | Action::Settle { .. }
        | Action::Confirm { .. }
        | Action::Complete { .. }
        | Action::Crash { .. }
        | Action::FindExpired { .. }
        | Action::ElapseKeyMemory { .. }
        | Action::Forget { .. }
        | Action::CutStandby
        | Action::Failover
        | Action::Move { .. } => None,
    }
}
