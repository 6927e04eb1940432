//! What the answer to a payment means. By the table alone: what it does not know is unknown.

use serde::Deserialize;
use symphony_outbox::payment::Reason;
use symphony_relay::rail::Answer;

use super::inquiry::Verdicts;
use super::reply::{self, AnswerKeys, Reply};
use super::settings::Settings;
use super::table::Table;
use super::{RAIL_LATER, RAIL_REFUSED};
use crate::config::Problem;

/// What an answer can mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// The rail has taken the payment.
    Accepted,
    /// The rail has refused it for good; nothing was paid.
    Refused,
    /// Nothing was paid; it may be sent again.
    Later,
    /// The same, but only where the answer has a `Retry-After` that can be read; else unknown.
    LaterWithRetryAfter,
    /// It may have been paid.
    Unknown,
}

/// What the body of an answer must be before an end is concluded from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnswerBody {
    /// A JSON object: a page of some gateway on the way is not the bank's word.
    #[default]
    Json,
    /// Anything, or nothing.
    Any,
}

/// What is known before a bank has said anything about itself. The reasons are in `docs/sinks/http.md`.
const DEFAULTS: [(&str, Word); 9] = [
    ("200", Word::Accepted),
    ("201", Word::Accepted),
    ("202", Word::Accepted),
    ("400", Word::Refused),
    ("422", Word::Refused),
    ("401", Word::Later),
    ("403", Word::Later),
    ("429", Word::Later),
    ("503", Word::LaterWithRetryAfter),
];

/// Statuses that reject one request for its size: they say nothing about the rail.
const REQUEST_REJECTED: [u16; 3] = [413, 414, 431];

/// The table of a rail.
#[derive(Debug)]
pub(super) struct Outcomes {
    table: Table<Word>,
    keys: AnswerKeys,
    body: AnswerBody,
}

impl Outcomes {
    pub(super) fn new(settings: &Settings) -> Result<Self, Problem> {
        let table = Table::new("outcomes", &DEFAULTS, &settings.outcomes)?;
        Ok(Self { table, keys: settings.answer_keys()?, body: settings.answer_body })
    }

    pub(super) fn answer(&self, reply: &Reply, verdicts: &Verdicts) -> Answer {
        let rail = reply.recorded(&self.keys.reference, &self.keys.code);
        let status = reply.status;
        let reason = |code: &str| Reason {
            code: code.to_owned(),
            message: Some(format!("the rail answered HTTP {status}")),
        };
        // "At once" is no wish to be asked again and again: then the rail's own backoff decides.
        let after = reply.retry_after.filter(|after| !after.is_zero());
        let row_only = REQUEST_REJECTED.contains(&status);
        let unknown = |why: &str, rail| Answer::Unknown {
            message: format!("the rail answered HTTP {status}, {why}"),
            rail,
            row_only,
        };

        // Not even "later" follows from it: the bank may have said that it paid.
        if reply.ambiguous {
            return unknown(reply::AMBIGUOUS, rail);
        }
        let (code, word) = (reply.word(&self.keys.code), reply.word(&self.keys.status));
        let known = |word: &Option<String>| word.as_deref().and_then(|word| self.table.exact(status, word));
        let (by_code, by_word) = (known(&code), known(&word));
        if let (Some(by_code), Some(by_word)) = (by_code, by_word)
            && by_code != by_word
        {
            return unknown("with a code and a status in its body that mean different things", rail);
        }
        let exact = by_code.or(by_word);
        let meaning = exact.or_else(|| self.table.plain(status));
        let ends = matches!(meaning, Some(Word::Accepted | Word::Refused));
        if ends && self.body == AnswerBody::Json && reply.body.is_none() {
            return unknown("without a JSON object (answer_body = \"any\" if it always does)", rail);
        }
        // A status alone must not overrule what the body says: banks also refuse with a 200.
        if let (None, Some(word)) = (exact, &word)
            && ends
        {
            let paid = verdicts.says_paid(word);
            let fits = if meaning == Some(Word::Accepted) { paid == Some(true) } else { paid != Some(true) };
            if !fits {
                return unknown("with a status in its body that does not fit it or is in no table", rail);
            }
        }
        match meaning {
            Some(Word::Accepted) => Answer::Accepted(rail),
            Some(Word::Refused) => Answer::Refused { reason: reason(RAIL_REFUSED), rail },
            Some(Word::Later) => Answer::Later { reason: reason(RAIL_LATER), rail, after },
            Some(Word::LaterWithRetryAfter) => match reply.retry_after {
                Some(_) => Answer::Later { reason: reason(RAIL_LATER), rail, after },
                None => unknown("without a Retry-After that can be read", rail),
            },
            Some(Word::Unknown) => unknown("which leaves the outcome open", rail),
            None => unknown("which the rail's table of outcomes does not know", rail),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn answer(toml: &str, status: u16, retry_after: Option<u64>, body: Option<Value>) -> Answer {
        let settings: Settings =
            crate::config::read(format!("url = 'https://x'\n{toml}").parse().unwrap()).unwrap();
        let verdicts = Verdicts::new(&settings.inquiry, settings.answer_keys().unwrap()).unwrap();
        let reply = Reply { status, retry_after: retry_after.map(Duration::from_secs), body, ambiguous: false };
        Outcomes::new(&settings).unwrap().answer(&reply, &verdicts)
    }

    fn word(answer: &Answer) -> &'static str {
        match answer {
            Answer::Accepted(_) => "accepted",
            Answer::Refused { .. } => "refused",
            Answer::Later { .. } => "later",
            Answer::Unknown { .. } => "unknown",
        }
    }

    #[test]
    fn by_default_only_these_statuses_are_known() {
        for status in 200..600 {
            let expected = match status {
                200..=202 => "accepted",
                400 | 422 => "refused",
                401 | 403 | 429 => "later",
                _ => "unknown",
            };
            assert_eq!(word(&answer("", status, None, Some(json!({})))), expected, "{status}");
            let told = if status == 503 { "later" } else { expected };
            assert_eq!(word(&answer("", status, Some(7), Some(json!({})))), told, "{status} with Retry-After");
        }
    }

    #[test]
    fn only_a_request_that_is_rejected_for_its_size_is_the_rows_own_failure() {
        for status in 200..600 {
            if let Answer::Unknown { row_only, .. } = answer("", status, None, None) {
                assert_eq!(row_only, [413, 414, 431].contains(&status), "{status}");
            }
        }
    }

    #[test]
    fn a_retry_after_of_nothing_leaves_the_delay_to_the_backoff() {
        for status in [429, 503] {
            for (said, expected) in [(0, None), (7, Some(Duration::from_secs(7)))] {
                let Answer::Later { after, .. } = answer("", status, Some(said), None) else {
                    panic!("not later: {status}");
                };
                assert_eq!(after, expected, "{status}");
            }
        }
    }

    #[test]
    fn an_end_is_concluded_only_from_the_banks_own_json() {
        for status in [200, 201, 202, 400, 422] {
            assert_eq!(word(&answer("", status, None, None)), "unknown", "{status}");
            assert_ne!(word(&answer("answer_body = 'any'", status, None, None)), "unknown", "{status}");
        }
        assert_eq!(word(&answer("", 429, None, None)), "later");
    }

    #[test]
    fn a_code_in_the_body_is_more_exact_than_the_status() {
        let table = "outcomes = { '409 DUPLICATE' = 'accepted', '422 TRY_LATER' = 'later', '422' = 'unknown' }";
        assert_eq!(word(&answer(table, 409, None, Some(json!({ "code": "DUPLICATE" })))), "accepted");
        assert_eq!(word(&answer(table, 409, None, Some(json!({ "code": "OTHER" })))), "unknown");
        assert_eq!(word(&answer(table, 422, None, Some(json!({ "code": "TRY_LATER" })))), "later");
        assert_eq!(word(&answer(table, 422, None, Some(json!({ "code": "NEW" })))), "unknown");
        assert_eq!(word(&answer(table, 500, None, Some(json!({ "code": "DUPLICATE" })))), "unknown");
    }

    #[test]
    fn a_status_alone_does_not_overrule_what_the_body_says() {
        let says = |status: u16, word: &str, toml: &str| {
            super::tests::word(&answer(toml, status, None, Some(json!({ "status": word }))))
        };
        assert_eq!(says(200, "EXECUTED", ""), "accepted");
        for word in ["REFUSED", "UNKNOWN_KEY", "PENDING", "RJCT", "executed", ""] {
            assert_eq!(says(200, word, ""), "unknown", "{word}");
        }
        assert_eq!(says(422, "EXECUTED", ""), "unknown");
        assert_eq!(says(422, "REFUSED", ""), "refused");
        assert_eq!(says(422, "INVALID", ""), "refused");
        // Problem details (RFC 9457) repeat the status as a number.
        assert_eq!(word(&answer("", 422, None, Some(json!({ "status": 422 })))), "refused");
        // Once the bank's word is in a table it counts.
        assert_eq!(
            says(202, "RCVD", "outcomes = { '202 RCVD' = 'accepted', '200 RJCT' = 'refused' }"),
            "accepted"
        );
        assert_eq!(says(200, "RJCT", "outcomes = { '202 RCVD' = 'accepted', '200 RJCT' = 'refused' }"), "refused");
        assert_eq!(says(200, "ACSC", "inquiry = { '200 ACSC' = 'executed' }"), "accepted");
    }

    #[test]
    fn reference_and_code_are_kept() {
        let Answer::Refused { reason, rail } = answer(
            "reference_key = '/payment/id'",
            422,
            None,
            Some(json!({ "code": "AC04", "payment": { "id": 7 } })),
        ) else {
            panic!("not refused");
        };
        assert_eq!(
            (reason.code.as_str(), reason.message.as_deref()),
            (RAIL_REFUSED, Some("the rail answered HTTP 422"))
        );
        assert_eq!((rail.reference.as_deref(), rail.code.as_deref()), (Some("7"), Some("AC04")));
        let Answer::Accepted(rail) = answer("", 201, None, Some(json!({}))) else { panic!("not accepted") };
        assert_eq!((rail.reference, rail.code.as_deref()), (None, Some("HTTP 201")));
    }
}
