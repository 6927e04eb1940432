//! What can happen in one step, and how a counterexample tells it.

use symphony_testkit::protocol::rules::{Answer, FirstStep, Inquiry, Prior};

use crate::state::{State, Step};

/// One step. Numbers are indices: of a payment, a worker, an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The producer commits the enqueue.
    Enqueue { payment: usize },
    /// A worker claims a due row, or takes over one whose lease has expired.
    Claim { worker: usize, payment: usize },
    /// The same, and the wait for the standby is cancelled.
    ClaimNotDurable { worker: usize, payment: usize },
    /// A worker drops its task: it releases a lease that it still holds.
    Release { worker: usize },
    /// A worker asks the bank what became of the key.
    Inquire { worker: usize, answered: bool },
    /// A worker records that an operator must decide, and sends nothing.
    Stop { worker: usize },
    /// A worker sends the payment.
    Send { worker: usize },
    /// The bank handles the request that a worker waits for.
    Handle { worker: usize, reaction: Reaction, answer_arrives: bool },
    /// A worker no longer waits for its answer.
    GiveUp { worker: usize },
    /// A request that no worker waits for reaches the bank.
    HandleLate { endpoint: usize, payment: usize, reaction: Reaction },
    /// Or it never does.
    LoseLate { endpoint: usize, payment: usize },
    /// The bank decides about a payment that it had accepted.
    Settle { endpoint: usize, payment: usize, executes: bool },
    /// The bank reports by a callback what it has decided.
    Confirm { endpoint: usize, payment: usize },
    /// A worker records its result. If the reply is lost, it does so again.
    Complete { worker: usize, reply_lost: bool },
    /// A lease expires.
    Expire { payment: usize },
    /// A worker's clock tells it that its lease is over, which the database does not know any more.
    RunOut { worker: usize },
    /// A worker dies.
    Crash { worker: usize },
    /// A repair reads that a lease has expired.
    FindExpired { worker: usize, payment: usize },
    /// A repair ends the lease that it has found.
    Repair { worker: usize },
    /// The key memory has elapsed.
    ElapseKeyMemory { payment: usize },
    /// The bank forgets a key.
    Forget { endpoint: usize, payment: usize },
    /// From here on the standby receives nothing.
    CutStandby,
    /// The standby receives everything.
    CatchUp,
    /// The standby is promoted.
    Failover,
    /// A worker restarts with the configuration of the new endpoint.
    Move { worker: usize },
    /// The pause of an open circuit breaker has ended.
    EndPause { worker: usize },
}

/// What the bank does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// It executes the payment, or answers with the first outcome of the key.
    Execute,
    /// It accepts the payment, to decide later, or answers with what it knows of the key.
    Accept,
    /// It refuses, for a known key before it looks at it.
    Refuse,
    /// It does nothing, and asks to come back later.
    Defer,
}

fn worker(index: usize) -> char {
    if index == 0 { 'A' } else { 'B' }
}

fn endpoint(index: usize) -> &'static str {
    if index == 0 { "the bank" } else { "the new endpoint" }
}

impl Action {
    /// The same step by the other worker, if a worker does it.
    pub(crate) fn by_the_other_worker(mut self) -> Self {
        if let Some(worker) = self.worker_mut() {
            *worker = 1 - *worker;
        }
        self
    }

    /// Whose step it is.
    pub(crate) fn worker(mut self) -> Option<usize> {
        self.worker_mut().copied()
    }

    fn worker_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Claim { worker, .. }
            | Self::ClaimNotDurable { worker, .. }
            | Self::Release { worker }
            | Self::Inquire { worker, .. }
            | Self::Stop { worker }
            | Self::Send { worker }
            | Self::Handle { worker, .. }
            | Self::GiveUp { worker }
            | Self::Complete { worker, .. }
            | Self::RunOut { worker }
            | Self::Crash { worker }
            | Self::FindExpired { worker, .. }
            | Self::Repair { worker }
            | Self::Move { worker }
            | Self::EndPause { worker } => Some(worker),
            Self::Enqueue { .. }
            | Self::HandleLate { .. }
            | Self::LoseLate { .. }
            | Self::Settle { .. }
            | Self::Confirm { .. }
            | Self::Expire { .. }
            | Self::ElapseKeyMemory { .. }
            | Self::Forget { .. }
            | Self::CutStandby
            | Self::CatchUp
            | Self::Failover => None,
        }
    }

    /// The step in a sentence.
    pub(crate) fn describe(self, before: &State, after: &State) -> String {
        let task = |index: usize| before.task(index).map_or((0, 0), |task| (task.payment + 1, task.lease));
        let text = match self {
            Self::Enqueue { payment } => format!("the producer enqueues payment {}", payment + 1),
            Self::Claim { worker, payment } | Self::ClaimNotDurable { worker, payment } => {
                claim(self, worker, payment, before, after)
            }
            Self::Release { worker: index } => {
                let (payment, lease) = task(index);
                let held = before.db.lease(payment - 1).is_some_and(|held| held.token == lease)
                    && !before.expired.contains(lease);
                let verb = if held { "releases" } else { "drops" };
                format!("worker {} {verb} payment {payment} (lease {lease})", worker(index))
            }
            Self::Inquire { worker: index, answered } => inquire(index, answered, before, after),
            Self::Stop { worker: index } => format!(
                "worker {} stops payment {}: its outcome is unknown, at another endpoint",
                worker(index),
                task(index).0
            ),
            Self::Send { worker: index } => {
                let to = endpoint(before.workers[index].endpoint);
                format!("worker {} sends payment {} to {to}", worker(index), task(index).0)
            }
            Self::Handle { worker: index, reaction, answer_arrives } => {
                let at = before.workers[index].endpoint;
                let done = handled(at, task(index).0, reaction, before, after);
                let answer =
                    if answer_arrives { "worker {} hears of it" } else { "the answer to worker {} is lost" };
                format!("{done}; {}", answer.replace("{}", &worker(index).to_string()))
            }
            Self::GiveUp { worker: index } => {
                format!("worker {} hears nothing about payment {} any more", worker(index), task(index).0)
            }
            Self::HandleLate { endpoint: at, payment, reaction } => {
                format!("late, {}", handled(at, payment + 1, reaction, before, after))
            }
            Self::LoseLate { endpoint: at, payment } => {
                format!("a request for payment {} to {} is lost", payment + 1, endpoint(at))
            }
            Self::Settle { endpoint: at, payment, executes } => {
                let decides = if executes { "executes" } else { "refuses" };
                format!("{} decides: it {decides} payment {}", endpoint(at), payment + 1)
            }
            Self::Confirm { endpoint: at, payment } => {
                let says = format!("{} reports what became of payment {}", endpoint(at), payment + 1);
                match after.db.payments[payment].ledger.last() {
                    Some(last) if before.db.payments != after.db.payments => {
                        format!("{says}: recorded as {:?}", last.past.ending)
                    }
                    _ => format!("{says}: refused"),
                }
            }
            Self::Complete { worker: index, reply_lost } => {
                let text = complete(index, before, after);
                if reply_lost { text + ", and the reply is lost" } else { text }
            }
            Self::Expire { payment } => {
                let lease = before.db.lease(payment).map_or(0, |lease| lease.token);
                format!("lease {lease} of payment {} expires", payment + 1)
            }
            Self::RunOut { worker: index } => {
                format!("the time of worker {} for lease {} is over", worker(index), task(index).1)
            }
            Self::Crash { worker: index } => format!("worker {} crashes", worker(index)),
            Self::FindExpired { worker: index, payment } => {
                let lease = after.task(index).map_or(0, |task| task.lease);
                format!(
                    "worker {}, for a repair, reads that lease {lease} of payment {} has expired",
                    worker(index),
                    payment + 1
                )
            }
            Self::Repair { worker: index } => {
                let payment = task(index).0;
                let what = match after.db.payments[payment - 1].ledger.last() {
                    Some(last) if before.db.payments != after.db.payments => {
                        format!("the ledger records {:?} for lease {}", last.past.ending, last.lease)
                    }
                    _ => "nothing is left to repair".to_owned(),
                };
                format!("worker {} repairs payment {payment}: {what}", worker(index))
            }
            Self::ElapseKeyMemory { payment } => format!("the key memory of payment {} elapses", payment + 1),
            Self::Forget { endpoint: at, payment } => {
                format!("{} forgets the key of payment {}", endpoint(at), payment + 1)
            }
            Self::CutStandby => "the standby receives nothing any more".to_owned(),
            Self::CatchUp => "the standby catches up".to_owned(),
            Self::Failover => format!("the standby is promoted, and epoch {} begins", after.db.epoch),
            Self::Move { worker: index } => {
                format!("worker {} restarts with the new endpoint", worker(index))
            }
            Self::EndPause { worker: index } => format!("the breaker of worker {} is half-open", worker(index)),
        };
        let breaker = match self {
            Self::Complete { worker: index, .. }
                if before.workers[index].breaker != after.workers[index].breaker =>
            {
                format!("; its breaker is {:?}", after.workers[index].breaker).to_lowercase()
            }
            _ => String::new(),
        };
        text + &breaker
    }
}

fn claim(action: Action, index: usize, payment: usize, before: &State, after: &State) -> String {
    let name = format!("payment {}", payment + 1);
    let taken_over = before.db.lease(payment).map(|lease| lease.token);
    let mut text = match taken_over {
        Some(lost) => format!("worker {} takes over {name}, whose lease {lost} has expired", worker(index)),
        None => format!("worker {} claims {name}", worker(index)),
    };
    let granted = after.db.lease(payment).filter(|lease| Some(lease.token) != taken_over);
    let Some(lease) = granted else { return text + ": it ends, at its last attempt" };
    text += &format!(" (lease {})", lease.token);
    if matches!(action, Action::ClaimNotDurable { .. }) {
        text += ", and the wait for the standby is cancelled";
    }
    match after.task(index).map(|task| task.step) {
        Some(Step::Claimed(FirstStep::Send)) => text += ": it may send",
        Some(Step::Claimed(FirstStep::Inquire)) => text += ": the outcome is unknown, so it must inquire",
        Some(Step::Claimed(FirstStep::Confirm)) => text += ": the bank has accepted it, so it may only inquire",
        Some(Step::Claimed(FirstStep::Stop)) => text += ": the outcome is unknown at another endpoint",
        Some(Step::MaySend(_) | Step::Sending(_) | Step::Reporting(_) | Step::Repairing) | None => {
            text += ": it is told of no lease";
        }
    }
    text
}

fn inquire(index: usize, answered: bool, before: &State, after: &State) -> String {
    let Some(task) = before.task(index) else { return String::new() };
    let bank = endpoint(before.workers[index].endpoint);
    let asks = format!("worker {} asks {bank} about payment {}", worker(index), task.payment + 1);
    let answer = if answered {
        let memory = before.endpoints[before.workers[index].endpoint].keys[task.payment].memory;
        match crate::transition::inquiry(memory) {
            Inquiry::Executed => "executed",
            Inquiry::Refused => "refused",
            Inquiry::NeverSeen => "never seen",
            Inquiry::NoAnswer | Inquiry::NotSupported => "nothing",
        }
    } else {
        "nothing"
    };
    let then = match after.task(index).map(|task| task.step) {
        Some(Step::MaySend(Prior::NotPaid)) => "it may send".to_owned(),
        Some(Step::MaySend(Prior::Unknown)) => "it may resend".to_owned(),
        Some(Step::Reporting(ending)) => format!("the result is {ending:?}"),
        Some(Step::Claimed(_) | Step::Sending(_) | Step::Repairing) | None => "it drops its task".to_owned(),
    };
    format!("{asks} and hears: {answer}; {then}")
}

fn handled(at: usize, payment: usize, reaction: Reaction, before: &State, after: &State) -> String {
    let (old, new) = (&before.endpoints[at].keys[payment - 1], &after.endpoints[at].keys[payment - 1]);
    let bank = endpoint(at);
    if new.executed > old.executed {
        return match after.executed(payment - 1) {
            1 => format!("{bank} executes payment {payment}"),
            times => format!("{bank} executes payment {payment}, which makes {times} times"),
        };
    }
    let answer = crate::transition::answer(old.memory, reaction);
    match (reaction, answer) {
        (_, Answer::Executed) => {
            format!("{bank} has executed payment {payment} before, and says so")
        }
        (_, Answer::Accepted) => format!("{bank} has accepted payment {payment}, and says so"),
        (_, Answer::Refused) => format!("{bank} refuses payment {payment}"),
        (_, Answer::Busy | Answer::Lost) => {
            format!("{bank} does nothing with payment {payment} for now")
        }
    }
}

fn complete(index: usize, before: &State, after: &State) -> String {
    let Some(task) = before.task(index) else { return String::new() };
    let Step::Reporting(reported) = task.step else { return String::new() };
    let reports = format!(
        "worker {} reports {reported:?} for payment {} (lease {})",
        worker(index),
        task.payment + 1,
        task.lease
    );
    let (old, new) = (&before.db.payments[task.payment].ledger, &after.db.payments[task.payment].ledger);
    match new.last() {
        Some(attempt) if new.len() > old.len() => {
            let of_another = if attempt.lease == task.lease {
                String::new()
            } else {
                format!(", and ends lease {}", attempt.lease)
            };
            let ending = attempt.past.ending;
            let recorded = if ending == reported { String::new() } else { format!(" as {ending:?}") };
            format!("{reports}: recorded{recorded}{of_another}")
        }
        _ => format!("{reports}: refused, the lease is lost"),
    }
}
