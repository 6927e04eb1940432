//! What the answer to an inquiry means. By the table alone: what it does not know was not said.

use std::collections::BTreeMap;

use serde::Deserialize;
use symphony_outbox::payment::Reason;
use symphony_relay::rail::Inquiry;

use super::RAIL_REFUSED;
use super::reply::{self, AnswerKeys, Reply};
use super::table::Table;
use crate::config::Problem;

/// What a rail can say about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// It was paid.
    Executed,
    /// It was refused for good.
    Refused,
    /// The rail has never seen the key.
    NeverSeen,
    /// The rail does not say, or not yet.
    Unsaid,
}

/// A status alone proves nothing here: a 404 may come from any proxy on the way, a 200 from a page for people. Each
/// of these asks for the bank's own word in a JSON body.
const DEFAULTS: [(&str, Verdict); 3] = [
    ("200 EXECUTED", Verdict::Executed),
    ("200 REFUSED", Verdict::Refused),
    ("404 UNKNOWN_KEY", Verdict::NeverSeen),
];

/// The table of a rail.
#[derive(Debug)]
pub(super) struct Verdicts {
    table: Table<Verdict>,
    keys: AnswerKeys,
}

impl Verdicts {
    pub(super) fn new(own: &BTreeMap<String, Verdict>, keys: AnswerKeys) -> Result<Self, Problem> {
        Ok(Self { table: Table::new("inquiry", &DEFAULTS, own)?, keys })
    }

    /// What a word says by itself about whether the payment was made, as far as the table goes.
    pub(super) fn says_paid(&self, word: &str) -> Option<bool> {
        let mut said = self.table.meanings_of(word).map(|verdict| match verdict {
            Verdict::Executed => Some(true),
            Verdict::Refused | Verdict::NeverSeen => Some(false),
            Verdict::Unsaid => None,
        });
        let first = said.next()??;
        // A word that means now this and now that means nothing by itself.
        said.all(|other| other == Some(first)).then_some(first)
    }

    pub(super) fn inquiry(&self, reply: &Reply) -> Inquiry {
        if reply.ambiguous {
            let message = format!("asked, the rail answered HTTP {}, {}", reply.status, reply::AMBIGUOUS);
            return Inquiry::Unsaid { message, rail: reply.recorded(&self.keys.reference, &self.keys.code) };
        }
        let word = reply.word(&self.keys.status);
        let mut rail = reply.recorded(&self.keys.reference, &self.keys.code);
        let exact = word.and_then(|word| self.table.exact(reply.status, &word));
        match exact.or_else(|| self.table.plain(reply.status)) {
            Some(Verdict::Executed) => Inquiry::Executed(rail),
            Some(Verdict::Refused) => {
                let message = Some("the rail says that it was refused".to_owned());
                Inquiry::Refused { reason: Reason { code: RAIL_REFUSED.to_owned(), message }, rail }
            }
            Some(Verdict::NeverSeen) => Inquiry::NeverSeen,
            Some(Verdict::Unsaid) | None => {
                // What is no end has no reference of an end.
                rail.reference = None;
                let message =
                    format!("asked, the rail answered HTTP {}, which does not say what happened", reply.status);
                // A rail that answers in its own words works. Were "still under way" taken for a failure, payments that are
                // under way would keep the breaker open against those that wait.
                if (200..300).contains(&reply.status) && reply.body.is_some() {
                    Inquiry::Undecided { message, rail }
                } else {
                    Inquiry::Unsaid { message, rail }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::settings::Settings;
    use super::*;

    fn verdict(toml: &str, status: u16, body: Option<Value>) -> Inquiry {
        let settings: Settings =
            crate::config::read(format!("url = 'https://x'\n{toml}").parse().unwrap()).unwrap();
        let verdicts = Verdicts::new(&settings.inquiry, settings.answer_keys().unwrap()).unwrap();
        verdicts.inquiry(&Reply { status, retry_after: None, body, ambiguous: false })
    }

    fn is_unsaid(inquiry: &Inquiry) -> bool {
        matches!(inquiry, Inquiry::Unsaid { .. } | Inquiry::Undecided { .. })
    }

    #[test]
    fn a_rail_that_answers_without_an_end_is_told_from_one_that_fails() {
        let works = |status, body| matches!(verdict("", status, body), Inquiry::Undecided { .. });
        assert!(works(200, Some(json!({ "status": "PENDING" }))));
        assert!(works(202, Some(json!({}))));
        assert!(!works(200, None));
        for status in [401, 403, 404, 429, 500, 502, 503] {
            assert!(!works(status, Some(json!({ "status": "PENDING" }))), "{status}");
        }
    }

    #[test]
    fn the_banks_own_words_are_understood() {
        let executed = verdict("", 200, Some(json!({ "status": "EXECUTED", "reference": "R1" })));
        assert!(matches!(executed, Inquiry::Executed(rail) if rail.reference.as_deref() == Some("R1")));
        let refused = verdict("", 200, Some(json!({ "status": "REFUSED", "code": "AC04" })));
        assert!(matches!(refused, Inquiry::Refused { rail, .. } if rail.code.as_deref() == Some("AC04")));
        assert_eq!(verdict("", 404, Some(json!({ "status": "UNKNOWN_KEY" }))), Inquiry::NeverSeen);
        assert!(is_unsaid(&verdict("", 200, Some(json!({ "status": "PENDING" })))));
    }

    #[test]
    fn a_status_alone_says_nothing_by_default() {
        for status in 200..600 {
            assert!(is_unsaid(&verdict("", status, None)), "{status}");
            assert!(
                is_unsaid(&verdict("", status, Some(json!({ "status": 1, "message": "EXECUTED" })))),
                "{status}"
            );
        }
    }

    #[test]
    fn a_word_counts_only_with_its_status() {
        assert!(is_unsaid(&verdict("", 200, Some(json!({ "status": "UNKNOWN_KEY" })))));
        assert!(is_unsaid(&verdict("", 404, Some(json!({ "status": "EXECUTED" })))));
        assert!(is_unsaid(&verdict("", 500, Some(json!({ "status": "REFUSED" })))));
        assert!(is_unsaid(&verdict("", 200, Some(json!({ "status": "executed" })))));
    }

    #[test]
    fn a_word_with_two_meanings_says_nothing_by_itself() {
        let own = BTreeMap::from([
            ("202 EXECUTED".to_owned(), Verdict::Unsaid),
            ("410 REFUSED".to_owned(), Verdict::NeverSeen),
        ]);
        let settings: Settings = crate::config::read("url = 'https://x'".parse().unwrap()).unwrap();
        let verdicts = Verdicts::new(&own, settings.answer_keys().unwrap()).unwrap();
        assert_eq!((verdicts.says_paid("EXECUTED"), verdicts.says_paid("REFUSED")), (None, Some(false)));
        assert_eq!((verdicts.says_paid("UNKNOWN_KEY"), verdicts.says_paid("PENDING")), (Some(false), None));
    }

    #[test]
    fn a_bank_may_have_other_words() {
        let own = "status_key = '/payment/state'\ninquiry = { '200 ACSC' = 'executed', '410' = 'never_seen', '200 EXECUTED' = 'unsaid' }";
        assert!(matches!(
            verdict(own, 200, Some(json!({ "payment": { "state": "ACSC" } }))),
            Inquiry::Executed(_)
        ));
        assert!(is_unsaid(&verdict(own, 200, Some(json!({ "payment": { "state": "EXECUTED" } })))));
        assert_eq!(verdict(own, 410, None), Inquiry::NeverSeen);
    }
}
