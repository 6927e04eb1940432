//! What each step does. The decisions are the functions of [`rules`]; a broken variant replaces one of them.

use symphony_db::payment::OnUnknown;
use symphony_testkit::protocol::rules::{
    self, AfterInquiry, Answer, Ending, FirstStep, History, Inquiry, LeaseCheck, PastAttempt, Prior,
};

use crate::action::{Action, Reaction};
use crate::model::Protocol;
use crate::state::{Attempt, Breaker, Database, Lease, LeaseSet, Memory, PendingRow, State, Step, Task};
use crate::variant::Variant;

/// What the bank answers to an inquiry.
pub(crate) fn inquiry(memory: Memory) -> Inquiry {
    match memory {
        Memory::Nothing => Inquiry::NeverSeen,
        // It answers "pending".
        Memory::Accepted => Inquiry::NoAnswer,
        Memory::Executed => Inquiry::Executed,
        Memory::Refused => Inquiry::Refused,
    }
}

/// What the bank answers to a payment.
pub(crate) fn answer(memory: Memory, reaction: Reaction) -> Answer {
    match (memory, reaction) {
        (_, Reaction::Defer) => Answer::Busy,
        (Memory::Nothing, Reaction::Execute) | (Memory::Executed, Reaction::Execute | Reaction::Accept) => {
            Answer::Executed
        }
        (Memory::Accepted, Reaction::Execute | Reaction::Accept) | (Memory::Nothing, Reaction::Accept) => {
            Answer::Accepted
        }
        (_, Reaction::Refuse) | (Memory::Refused, Reaction::Execute | Reaction::Accept) => Answer::Refused,
    }
}

impl Protocol {
    pub(crate) fn apply(&self, state: &mut State, action: Action) {
        match action {
            Action::Enqueue { payment } => {
                let epoch = state.db.epoch;
                let row = &mut state.db.payments[payment];
                row.committed = true;
                row.pending = Some(PendingRow { epoch, lease: None });
                state.witness.acknowledged[payment] = Some(epoch);
            }
            Action::Claim { worker, payment } => {
                self.claim(state, worker, payment, true);
            }
            Action::ClaimNotDurable { worker, payment } => {
                state.standby = Some(Box::new(state.db.clone()));
                self.claim(state, worker, payment, self.is(Variant::ClaimWithoutDurableCommit));
            }
            Action::Release { worker } => self.release(state, worker),
            Action::Inquire { worker, answered } => self.inquire(state, worker, answered),
            Action::Stop { worker } => set_step(state, worker, |_| Step::Reporting(Ending::Stopped)),
            Action::Send { worker } => {
                let over = state.task(worker).is_some_and(|task| state.over.contains(task.lease));
                state.witness.sent_after_expiry |= over;
                set_step(state, worker, |step| match step {
                    Step::MaySend(prior) => Step::Sending(prior),
                    Step::Claimed(_) | Step::Sending(_) | Step::Reporting(_) | Step::Repairing => {
                        Step::Sending(Prior::NotPaid)
                    }
                });
            }
            Action::Handle { worker, reaction, answer_arrives } => {
                let endpoint = state.workers[worker].endpoint;
                let Some(task) = state.task(worker).cloned() else { return };
                let in_time = state.db.lease(task.payment).is_some_and(|lease| lease.token == task.lease);
                let answer = self.handle(state, endpoint, task.payment, reaction, !in_time);
                report(state, worker, if answer_arrives { answer } else { Answer::Lost });
            }
            Action::GiveUp { worker } => {
                self.leave_request(state, worker);
                report(state, worker, Answer::Lost);
            }
            Action::HandleLate { endpoint, payment, reaction } => {
                state.endpoints[endpoint].keys[payment].unattended -= 1;
                self.handle(state, endpoint, payment, reaction, true);
            }
            Action::LoseLate { endpoint, payment } => state.endpoints[endpoint].keys[payment].unattended -= 1,
            Action::Settle { endpoint, payment, executes } => {
                let key = &mut state.endpoints[endpoint].keys[payment];
                key.memory = if executes { Memory::Executed } else { Memory::Refused };
                key.executed += u8::from(executes);
            }
            Action::Confirm { endpoint, payment } => self.confirm(state, endpoint, payment),
            Action::Complete { worker, reply_lost } => {
                let task = state.task(worker).cloned();
                self.complete(state, worker);
                if reply_lost {
                    state.workers[worker].task = task;
                }
            }
            Action::Expire { payment } => {
                let Some(lease) = state.db.lease(payment).map(|lease| lease.token) else { return };
                state.expired.insert(lease);
                state.over.insert(lease);
            }
            Action::RunOut { worker } => {
                let Some(lease) = state.task(worker).map(|task| task.lease) else { return };
                state.expired.insert(lease);
                state.over.insert(lease);
            }
            Action::Crash { worker } => {
                self.leave_request(state, worker);
                state.workers[worker].task = None;
                state.workers[worker].breaker = Breaker::Closed;
            }
            Action::FindExpired { worker, payment } => {
                let Some(lease) = state.db.lease(payment).map(|lease| lease.token) else { return };
                let step = Step::Repairing;
                state.workers[worker].task = Some(Task { payment, lease, attempt_no: 0, step });
            }
            Action::Repair { worker } => self.repair(state, worker),
            Action::ElapseKeyMemory { payment } => state.memory_elapsed[payment] = true,
            Action::Forget { endpoint, payment } => {
                state.endpoints[endpoint].keys[payment].memory = Memory::Nothing;
            }
            Action::CutStandby => state.standby = Some(Box::new(state.db.clone())),
            Action::CatchUp => state.standby = None,
            Action::Failover => {
                let Some(standby) = state.standby.take() else { return };
                let epoch = state.db.epoch + 1;
                state.db = Database { epoch, ..*standby };
                if self.scenario.clock_behind {
                    state.expired = LeaseSet::default();
                }
            }
            Action::Move { worker } => state.workers[worker].endpoint = 1,
            Action::EndPause { worker } => state.workers[worker].breaker = Breaker::HalfOpen,
        }
    }

    /// A claim: ends an expired lease, grants a new one, and says whether the outcome is unknown.
    fn claim(&self, state: &mut State, worker: usize, payment: usize, granted: bool) {
        if state.workers[worker].breaker == Breaker::HalfOpen {
            let wasted = state.db.payments[payment].has_failed() && self.fresh_payment_is_due(state, payment);
            state.witness.probe_wasted |= wasted;
        }
        if let Some(lost) = state.db.lease(payment).cloned() {
            if self.is(Variant::TakeoverWithoutLedgerRow) {
                state.db.payments[payment].pending.iter_mut().for_each(|row| row.lease = None);
            } else {
                self.record(state, payment, &lost, Ending::LeaseExpired, lost.token);
            }
        }
        let endpoint = state.workers[worker].endpoint;
        let first = self.first_step(state, payment, endpoint);
        let epoch = state.db.epoch;
        let Some(row) = &mut state.db.payments[payment].pending else { return };
        state.leases_granted += 1;
        let token = state.leases_granted;
        row.lease = Some(Lease { token, epoch, endpoint });
        state.db.granted.insert(token);
        if granted {
            let attempt_no = next_attempt_no(&state.db, payment);
            let step = Step::Claimed(first);
            state.workers[worker].task = Some(Task { payment, lease: token, attempt_no, step });
            state.witness.leases_known_to_workers.insert(token);
        }
    }

    fn first_step(&self, state: &State, payment: usize, endpoint: usize) -> FirstStep {
        let row = &state.db.payments[payment];
        let attempts: Vec<_> = row.ledger.iter().map(|attempt| attempt.past).collect();
        let epoch = state.db.epoch;
        let enqueued_in = row.pending.as_ref().map_or(epoch, |pending| pending.epoch);
        let mut history = History { enqueued_in, epoch, attempts: &attempts };
        if self.is(Variant::EpochIgnored) {
            history.enqueued_in = epoch;
        }
        if self.is(Variant::LastEndpointOnly) {
            history.attempts = &attempts[attempts.len().saturating_sub(1)..];
        }
        match history.first_step(&endpoint) {
            FirstStep::Inquire if self.is(Variant::ResendOnUnknown) => FirstStep::Send,
            FirstStep::Confirm if self.is(Variant::AcceptanceIsUnknown) => FirstStep::Inquire,
            FirstStep::Stop if self.is(Variant::EndpointIgnored) => FirstStep::Inquire,
            step => step,
        }
    }

    fn release(&self, state: &mut State, worker: usize) {
        let Some(task) = state.workers[worker].task.take() else { return };
        if self.holds_lease(state, &task)
            && let Some(row) = &mut state.db.payments[task.payment].pending
        {
            state.db.released.insert(task.lease);
            row.lease = None;
        }
    }

    /// The advice, the inquiry and the decision.
    fn inquire(&self, state: &mut State, worker: usize, answered: bool) {
        let endpoint = state.workers[worker].endpoint;
        let Some(payment) = state.task(worker).map(|task| task.payment) else { return };
        let remembered = !state.memory_elapsed[payment] || self.is(Variant::ForgottenKeyTrusted);
        let answer = match (answered, self.scenario.inquiries) {
            (true, _) => inquiry(state.endpoints[endpoint].keys[payment].memory),
            (false, true) => Inquiry::NoAnswer,
            (false, false) => Inquiry::NotSupported,
        };
        let policy: OnUnknown = self.scenario.on_unknown;
        if state.task(worker).is_some_and(|task| task.step == Step::Claimed(FirstStep::Confirm)) {
            return set_step(state, worker, |_| Step::Reporting(rules::after_confirmation_inquiry(answer)));
        }
        set_step(state, worker, |_| match rules::after_inquiry(answer, remembered, policy) {
            AfterInquiry::Send(Prior::Unknown) if self.is(Variant::RefusalOfRepeatTrusted) => {
                Step::MaySend(Prior::NotPaid)
            }
            AfterInquiry::Send(prior) => Step::MaySend(prior),
            AfterInquiry::Record(ending) => Step::Reporting(ending),
        });
    }

    /// The bank handles a request.
    fn handle(
        &self,
        state: &mut State,
        endpoint: usize,
        payment: usize,
        reaction: Reaction,
        late: bool,
    ) -> Answer {
        let key = &mut state.endpoints[endpoint].keys[payment];
        let answer = answer(key.memory, reaction);
        match (key.memory, answer) {
            (Memory::Nothing, Answer::Accepted) => {
                key.memory = Memory::Accepted;
                state.witness.executed_late[payment] |= late;
            }
            (Memory::Nothing, Answer::Executed) => {
                key.memory = Memory::Executed;
                key.executed += 1;
                state.witness.executed_late[payment] |= late;
                let later = payment + 1..self.scenario.payments;
                if self.scenario.ordered && later.into_iter().any(|later| state.executed(later) > 0) {
                    state.witness.out_of_order |= !late;
                    state.witness.out_of_order_late |= late;
                }
            }
            (Memory::Nothing, Answer::Refused) => key.memory = Memory::Refused,
            _ => {}
        }
        answer
    }

    /// A completion: the lease check, then the ledger row.
    fn complete(&self, state: &mut State, worker: usize) {
        let Some(task) = state.workers[worker].task.take() else { return };
        let Step::Reporting(ending) = task.step else { return };
        if self.scenario.poison {
            let breaker = &mut state.workers[worker].breaker;
            *breaker = match ending {
                Ending::Deferred | Ending::Unknown => Breaker::Open,
                _ => Breaker::Closed,
            };
        }
        if self.holds_lease(state, &task)
            && let Some(lease) = state.db.lease(task.payment).cloned()
        {
            self.record(state, task.payment, &lease, ending, task.lease);
        }
    }

    /// A callback: it settles a payment that may be at this bank, and ends its lease.
    fn confirm(&self, state: &mut State, endpoint: usize, payment: usize) {
        let ending = match state.endpoints[endpoint].keys[payment].memory {
            Memory::Executed => Ending::Dispatched,
            Memory::Refused => Ending::NotPaid,
            Memory::Nothing | Memory::Accepted => return,
        };
        let Some(pending) = state.db.payments[payment].pending.clone() else { return };
        let attempts: Vec<_> = state.db.payments[payment].ledger.iter().map(|attempt| attempt.past).collect();
        let history = History { enqueued_in: pending.epoch, epoch: state.db.epoch, attempts: &attempts };
        let leased_to = pending.lease.as_ref().map(|lease| lease.endpoint);
        let settles = history.may_be_confirmed(leased_to.as_ref(), &endpoint);
        if settles {
            let without = Lease { token: 0, epoch: state.db.epoch, endpoint };
            let lease = pending.lease.unwrap_or(without);
            self.record(state, payment, &lease, ending, lease.token);
            // It is the bank's word, and needs no live lease.
            if let Some(last) = state.db.payments[payment].ledger.last_mut() {
                last.expired = false;
            }
        }
    }

    fn repair(&self, state: &mut State, worker: usize) {
        let Some(task) = state.workers[worker].task.take() else { return };
        let lease = state.db.lease(task.payment).cloned();
        let found = lease.filter(|lease| lease.token == task.lease && state.expired.contains(lease.token));
        let found = if self.is(Variant::RepairWithoutRecheck) {
            Some(Lease { token: task.lease, epoch: state.db.epoch, endpoint: state.workers[worker].endpoint })
        } else {
            found
        };
        if let Some(lease) = found {
            self.record(state, task.payment, &lease, Ending::LeaseExpired, lease.token);
        }
    }

    /// Whether the database finds the task's lease on the row.
    pub(crate) fn holds_lease(&self, state: &State, task: &Task) -> bool {
        let Some(lease) = state.db.lease(task.payment) else { return false };
        let expired = state.expired.contains(lease.token) && !self.is(Variant::CompletionAfterExpiry);
        let check = if self.is(Variant::NoToken) {
            rules::check_lease(Some(((), expired)), ())
        } else if self.is(Variant::AttemptNumberAsToken) {
            rules::check_lease(Some((next_attempt_no(&state.db, task.payment), expired)), task.attempt_no)
        } else {
            rules::check_lease(Some((lease.token, expired)), task.lease)
        };
        check == LeaseCheck::Held
    }

    /// Ends a lease: appends its ledger row, and requeues or deletes the pending row.
    fn record(&self, state: &mut State, payment: usize, lease: &Lease, reported: Ending, reported_under: u8) {
        let attempt_no = next_attempt_no(&state.db, payment);
        let past = &state.db.payments[payment].ledger;
        let accepted_before = past.iter().any(|attempt| attempt.past.ending == Ending::Accepted);
        let kept = rules::kept(reported, accepted_before);
        let ending = rules::recorded(kept, attempt_no, self.scenario.max_attempts);
        let epoch = if self.is(Variant::EpochOfRecord) { state.db.epoch } else { lease.epoch };
        let expired = state.expired.contains(lease.token);
        let row = &mut state.db.payments[payment];
        let past = PastAttempt { ending, epoch, endpoint: lease.endpoint };
        row.ledger.push(Attempt { past, lease: lease.token, reported_under, expired });
        if ending.is_terminal() {
            row.pending = None;
        } else if let Some(pending) = &mut row.pending {
            pending.lease = None;
        }
    }

    /// A request that a worker no longer waits for may still arrive.
    fn leave_request(&self, state: &mut State, worker: usize) {
        let endpoint = state.workers[worker].endpoint;
        if let Some(Task { payment, step: Step::Sending(_), .. }) = state.task(worker).cloned()
            && self.scenario.late_requests
        {
            state.endpoints[endpoint].keys[payment].unattended += 1;
        }
    }
}

fn next_attempt_no(db: &Database, payment: usize) -> i32 {
    let last = i32::try_from(db.payments[payment].ledger.len()).unwrap();
    rules::next_attempt_no((last > 0).then_some(last))
}

fn set_step(state: &mut State, worker: usize, next: impl FnOnce(Step) -> Step) {
    if let Some(task) = &mut state.workers[worker].task {
        task.step = next(task.step);
    }
}

fn report(state: &mut State, worker: usize, answer: Answer) {
    set_step(state, worker, |step| match step {
        Step::Sending(prior) => Step::Reporting(rules::after_answer(answer, prior)),
        Step::Claimed(_) | Step::MaySend(_) | Step::Reporting(_) | Step::Repairing => step,
    });
}
