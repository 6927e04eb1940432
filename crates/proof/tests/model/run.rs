//! Runs one generated sequence against the database and the model, and reports the first difference.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::call::{Answer, Call, Form};
use super::claims::Claim;
use super::full_comparison::audit;
use super::pending;
use super::reference::{Micros, State};
use super::sessions::Sessions;
use super::step::{Sequence, Step};
use super::step_to_call::{Sent, call};
use super::transactions::Model;

/// The run of one sequence.
#[derive(Debug, Default)]
pub(crate) struct Run {
    model: Model,
    sent: Sent,
    /// The latest time of the database.
    clock: Micros,
    /// The calls so far, as text.
    pub(crate) transcript: String,
    pub(crate) calls: usize,
}

impl Run {
    /// Runs the sequence. An error lists the calls up to the first difference.
    pub(crate) async fn start(
        sessions: &mut Sessions,
        number: usize,
        sequence: &Sequence,
    ) -> Result<Self, String> {
        sessions.start(number, &sequence.rails).await;
        let mut run = Self::default();
        for (no, policy) in sequence.rails.iter().enumerate() {
            let _ = writeln!(run.transcript, "  rail {no}: {policy}");
            run.model.committed.rails.insert(no, policy.clone());
        }
        match run.run_steps(sessions, &sequence.steps).await {
            Ok(()) => Ok(run),
            Err(difference) => Err(format!("{}\n{difference}", run.transcript)),
        }
    }

    async fn run_steps(&mut self, sessions: &mut Sessions, steps: &[(usize, Step)]) -> Result<(), String> {
        for (session, step) in steps {
            if matches!(step, Step::Audit) {
                audit(sessions, &mut self.model.committed).await?;
                continue;
            }
            let seen = self.model.seen_by(*session);
            let call = call(step, &seen, self.model.is_open(*session), self.clock, &mut self.sent);
            if let Some(call) = call.filter(|call| !self.model.would_wait(*session, call, self.clock)) {
                self.make(sessions, *session, &call).await?;
            }
        }
        for session in self.model.open_sessions() {
            self.make(sessions, session, &Call::Commit).await?;
        }
        audit(sessions, &mut self.model.committed).await
    }

    async fn make(&mut self, sessions: &mut Sessions, session: usize, call: &Call) -> Result<(), String> {
        self.calls += 1;
        let fresh = sessions.id_map().next_outbox();
        let name = char::from(b'A' + u8::try_from(session).unwrap_or(0));
        let _ = write!(self.transcript, "  {:>2}. session {name} {call}", self.calls);
        let (now, answer) = sessions.make(session, call).await;
        let answer = answer.unwrap_or_else(Answer::Refused);
        let _ = writeln!(self.transcript, ": {answer}");
        self.clock = self.clock.max(now.unwrap_or(self.clock));
        let now = now.or(self.model.transaction_time(session)).unwrap_or(self.clock);

        match call {
            Call::Begin => self.model.begin(session, now),
            Call::Commit => self.model.commit(session),
            Call::RollBack => self.model.roll_back(session),
            _ => {}
        }
        let before = self.model.seen_by(session);
        let mut after = before.clone();
        if matches!(answer, Answer::Refused(_)) && self.model.is_open(session) {
            // The transaction is lost with it.
            sessions.make(session, &Call::RollBack).await.1?;
            judge(call, &answer, &mut after, now, fresh)?;
            self.model.roll_back(session);
            return Ok(());
        }

        let (caller, id_map) = sessions.look(session);
        let queue = pending::read(caller, id_map).await;
        if let (Call::Claim { worker, batch, lease_seconds }, Answer::Leased(rows)) = (call, &answer) {
            let locked = self.model.locked_for(session);
            let gone: BTreeSet<_> =
                after.pending().map(|(no, _)| no).filter(|no| !queue.contains_key(no)).collect();
            let claim =
                Claim { worker, batch: *batch, lease_seconds: *lease_seconds, now, locked: &locked, gone: &gone };
            after.claim(&claim, rows)?;
            for row in rows {
                let identity = id_map.identity(&after.outboxes[&row.outbox].what);
                if row.identity != identity {
                    return Err(format!("expected {identity:?}, not {:?}", row.identity));
                }
            }
        } else if let (Call::Repair { batch, .. }, Answer::Repaired(rows)) = (call, &answer) {
            after.repair(*batch, now, &self.model.locked_for(session), rows)?;
        } else {
            judge(call, &answer, &mut after, now, fresh)?;
        }
        pending::compare(&mut after, &queue, id_map)?;
        self.model.changed(session, call, &before, &after);
        Ok(())
    }
}

/// A call with only one correct answer: the model must give the answer of the database.
fn judge(call: &Call, answer: &Answer, state: &mut State, now: Micros, fresh: usize) -> Result<(), String> {
    let refused = |code: &'static str| Answer::Refused(code.to_owned());
    let expected = match call {
        Call::Begin | Call::Commit | Call::RollBack => Answer::Done,
        Call::Enqueue { given, .. } => {
            let mut tried = state.clone();
            match tried.enqueue(given, now, fresh) {
                Ok(rows) => {
                    *state = tried;
                    Answer::Enqueued(rows)
                }
                Err(code) => refused(code),
            }
        }
        Call::Complete { form, worker, outcomes } => {
            let rows = state.complete(outcomes, worker, now);
            match (form, rows.first()) {
                (Form::Single, Some(Err(code))) => refused(code),
                _ => Answer::Completed(rows),
            }
        }
        Call::Renew { worker, leases, seconds } => Answer::Renewed(state.renew(leases, worker, *seconds, now)),
        Call::Release { worker, leases, delay_seconds } => {
            Answer::Released(state.release(leases, worker, *delay_seconds, now))
        }
        Call::Redrive(no) => match state.redrive(*no, now, fresh) {
            Ok(row) => Answer::Enqueued(vec![row]),
            Err(code) => refused(code),
        },
        Call::Resolve(no, resolution) => state.resolve(*no, resolution).map_or_else(refused, |()| Answer::Done),
        Call::SetRail(no, policy) => {
            let paused = state.rails.get(no).is_some_and(|rail| rail.paused);
            state.rails.insert(*no, super::reference::Policy { paused, ..policy.clone() });
            Answer::Done
        }
        Call::Pause(no) | Call::Resume(no) => {
            if let Some(rail) = state.rails.get_mut(no) {
                rail.paused = matches!(call, Call::Pause(_));
            }
            Answer::Done
        }
        Call::Expire(no) => {
            let Answer::Moved(at) = *answer else { return Err("the lease was to run out".to_owned()) };
            if let Some(lease) = state.lease_mut(*no) {
                lease.expires_at = at;
            }
            Answer::Moved(at)
        }
        Call::Miscount(no) => {
            if let Some(pending) = state.pending_mut(*no) {
                pending.attempt_count = 20.min(pending.attempt_count + 1);
            }
            Answer::Moved(now)
        }
        Call::MakeDue(no) => {
            if let Some(pending) = state.pending_mut(*no) {
                pending.next_attempt_at = now;
            }
            Answer::Moved(now)
        }
        Call::Claim { .. } | Call::Repair { .. } => return Err(format!("expected rows, not {answer}")),
    };
    if *answer == expected {
        return Ok(());
    }
    Err(format!("expected: {expected}\n  {expected:?}\nbut was: {answer}\n  {answer:?}"))
}
