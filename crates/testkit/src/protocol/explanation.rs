//! Explains the requests that the bank has handled for one key: which attempt sent which, and is that allowed?
//!
//! A request names no attempt, and one that was given up may be handled late. So an explanation is searched: each request
//! belongs to an attempt that had been claimed, each attempt sends what the rules let it send, and its ending is one that
//! the rules allow after the answers.

use std::collections::HashSet;

use symphony_db::payment::OnUnknown;

use super::replay::Step;
use super::rules::{self, AfterInquiry, Answer, Ending, FirstStep, Inquiry, Prior};
use super::trace::{Attempt, Confirmation, Handled, Kind, Policy, Request};

/// An attempt, and what its worker knew when it began.
pub(super) struct Past<'a> {
    pub(super) attempt: &'a Attempt,
    /// The policies that its rail had.
    pub(super) policies: &'a [Policy],
    /// What its worker may have done first.
    pub(super) first: Vec<FirstStep>,
}

/// How far an attempt has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Progress {
    /// It has sent nothing.
    Nothing,
    /// The bank has handled its inquiry.
    Inquired(Handled),
    /// The bank has handled its payment, sent with what was known then.
    Paid(Prior, Handled),
}

/// Finds an explanation.
pub(super) fn explain(pasts: &[Past<'_>], requests: &[&Request]) -> Result<(), Step> {
    let mut search = Search { pasts, requests, seen: HashSet::new(), furthest: 0, unexplained: None };
    if search.from(0, &mut vec![Progress::Nothing; pasts.len()]) {
        return Ok(());
    }
    match (search.unexplained, requests.get(search.furthest)) {
        (Some(index), _) => {
            let attempt = pasts[index].attempt;
            let what = format!(
                "attempt {}, of {}, ends as {:?}, which does not follow from what the bank did: {}",
                attempt.number,
                attempt.worker,
                attempt.ending,
                describe(requests)
            );
            Err((attempt.completed_at, what))
        }
        (None, Some(request)) => {
            let what = format!(
                "the bank handles a request ({:?}, {:?}) that no attempt may have sent: {}",
                request.kind,
                request.outcome,
                describe(requests)
            );
            Err((request.at, what))
        }
        (None, None) => Ok(()),
    }
}

fn describe(requests: &[&Request]) -> String {
    if requests.is_empty() {
        return "it has handled no request".to_owned();
    }
    let all: Vec<_> = requests
        .iter()
        .map(|request| format!("{:?} {:?}", request.kind, request.outcome).to_lowercase())
        .collect();
    format!("it has handled {}", all.join(", "))
}

struct Search<'a, 'b> {
    pasts: &'a [Past<'b>],
    requests: &'a [&'a Request],
    /// The positions from which there is no explanation.
    seen: HashSet<(usize, Vec<Progress>)>,
    /// How many requests the best explanation covers.
    furthest: usize,
    /// If it covers all: the first attempt whose ending it does not explain.
    unexplained: Option<usize>,
}

impl Search<'_, '_> {
    fn from(&mut self, place: usize, progress: &mut Vec<Progress>) -> bool {
        self.furthest = self.furthest.max(place);
        let Some(request) = self.requests.get(place) else {
            let wrong = (0..self.pasts.len()).find(|index| {
                let past = &self.pasts[*index];
                !ends(past, progress[*index]) && !is_confirmed(past.attempt, self.requests)
            });
            self.unexplained = self.unexplained.max(wrong);
            return wrong.is_none();
        };
        if !self.seen.insert((place, progress.clone())) {
            return false;
        }
        // No attempt sends it.
        if request.kind == Kind::Settlement {
            return self.from(place + 1, progress);
        }
        // The latest attempt first: a late request is the exception.
        for index in (0..self.pasts.len()).rev() {
            let Some(next) = send(&self.pasts[index], progress[index], request) else { continue };
            let before = std::mem::replace(&mut progress[index], next);
            if self.from(place + 1, progress) {
                return true;
            }
            progress[index] = before;
        }
        false
    }
}

/// What an attempt has done once it has sent this request, if it may have.
fn send(past: &Past<'_>, progress: Progress, request: &Request) -> Option<Progress> {
    let attempt = past.attempt;
    // An ending that rests on an answer is recorded after it.
    // A callback does not wait for the worker whose lease it ends.
    let on_time = attempt.ending.is_unknown()
        || attempt.confirmation == Confirmation::OfLease
        || request.at <= attempt.completed_at;
    if request.at < attempt.claimed_at || !on_time || attempt.confirmation == Confirmation::WithoutLease {
        return None;
    }
    let may = |first| past.first.contains(&first);
    match (request.kind, progress) {
        (Kind::Inquiry, Progress::Nothing) if may(FirstStep::Inquire) || may(FirstStep::Confirm) => {
            Some(Progress::Inquired(request.outcome))
        }
        (Kind::Payment, Progress::Nothing) if may(FirstStep::Send) => {
            Some(Progress::Paid(Prior::NotPaid, request.outcome))
        }
        (Kind::Payment, Progress::Nothing | Progress::Inquired(_)) if may(FirstStep::Inquire) => {
            let sends = after_inquiry(past, progress).into_iter().find_map(|next| match next {
                AfterInquiry::Send(prior) => Some(prior),
                AfterInquiry::Record(_) => None,
            });
            sends.map(|prior| Progress::Paid(prior, request.outcome))
        }
        _ => None,
    }
}

/// Whether a callback has ended it as the bank had decided before.
fn is_confirmed(attempt: &Attempt, requests: &[&Request]) -> bool {
    let decided =
        |outcome| requests.iter().any(|request| request.outcome == outcome && request.at <= attempt.completed_at);
    attempt.confirmation != Confirmation::None
        && match attempt.ending {
            Ending::Dispatched => decided(Handled::Executed),
            Ending::NotPaid => decided(Handled::Refused),
            _ => false,
        }
}

/// What the bank may have answered to the inquiry.
fn answers(progress: Progress) -> &'static [Inquiry] {
    match progress {
        Progress::Inquired(Handled::Found) => &[Inquiry::Executed, Inquiry::Refused, Inquiry::NoAnswer],
        Progress::Inquired(Handled::UnknownKey) => &[Inquiry::NeverSeen, Inquiry::NoAnswer],
        Progress::Inquired(_) => &[Inquiry::NoAnswer],
        Progress::Nothing | Progress::Paid(..) => &[Inquiry::NotSupported, Inquiry::NoAnswer],
    }
}

/// What may follow the inquiry, by each policy that the rail had.
fn after_inquiry(past: &Past<'_>, progress: Progress) -> Vec<AfterInquiry> {
    let mut found = Vec::new();
    for answer in answers(progress) {
        for policy in past.policies {
            for remembered in if policy.forgets { &[true, false][..] } else { &[true][..] } {
                found.push(rules::after_inquiry(*answer, *remembered, policy.on_unknown));
            }
        }
        if past.policies.is_empty() {
            found.push(rules::after_inquiry(*answer, true, OnUnknown::Inquire));
        }
    }
    found
}

/// Whether an attempt that came this far may have ended as it did.
fn ends(past: &Past<'_>, progress: Progress) -> bool {
    let Attempt { ending, number, .. } = *past.attempt;
    let lowest = past.policies.iter().map(|policy| policy.max_attempts).min().unwrap_or(i32::MAX);
    let accepted_before = past.first.contains(&FirstStep::Confirm);
    // By each ceiling that the rail had.
    let may_be = |reported: Ending| {
        let kept = rules::kept(reported, accepted_before);
        ending == kept || ending == rules::recorded(kept, number, lowest)
    };
    // Its worker may have died, or have been cancelled, at any moment.
    if may_be(Ending::LeaseExpired) || may_be(Ending::Unknown) {
        return true;
    }
    match progress {
        // Not sent, or refused before it was sent.
        Progress::Nothing if past.first.contains(&FirstStep::Send) => {
            may_be(Ending::Deferred) || may_be(Ending::NotPaid) || past.first.len() > 1 && may_be(Ending::Stopped)
        }
        // What cannot be sent after an unknown outcome is not known to be unpaid.
        Progress::Nothing => may_be(Ending::Stopped),
        Progress::Inquired(_) if accepted_before => {
            answers(progress).iter().any(|answer| may_be(rules::after_confirmation_inquiry(*answer)))
        }
        Progress::Inquired(_) => after_inquiry(past, progress).into_iter().any(|next| match next {
            AfterInquiry::Record(reported) => may_be(reported),
            AfterInquiry::Send(Prior::NotPaid) => may_be(Ending::Deferred) || may_be(Ending::NotPaid),
            AfterInquiry::Send(Prior::Unknown) => may_be(Ending::Stopped),
        }),
        Progress::Paid(prior, handled) => {
            let answers: &[Answer] = match handled {
                Handled::Executed => &[Answer::Executed, Answer::Lost],
                Handled::Accepted => &[Answer::Accepted, Answer::Lost],
                Handled::Replayed => &[Answer::Executed, Answer::Accepted, Answer::Refused, Answer::Lost],
                Handled::Refused | Handled::KeyReused => &[Answer::Refused, Answer::Busy, Answer::Lost],
                Handled::Nothing | Handled::Found | Handled::UnknownKey => {
                    &[Answer::Busy, Answer::Refused, Answer::Lost]
                }
            };
            answers.iter().any(|answer| may_be(rules::after_answer(*answer, prior)))
        }
    }
}
