//! Classifies a bank's response to an inquiry, and maps the class to the rail's [`Inquiry`].
//!
//! Only the table of the setting `inquiry` decides. A response that is not in the table says nothing about the payment.
//! `HttpRail::send_inquiry` sends the request.

use std::collections::BTreeMap;

use serde::Deserialize;
use symphony_db::payment::Reason;
use symphony_relay::rail::Inquiry;

use super::RAIL_REFUSED;
use super::response::{self, HttpResponse, ResponseFields};
use super::status_table::StatusTable;
use crate::config::SettingError;

/// What a bank can say about an idempotency key. The names in the settings are those of `inquiry`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InquiryResult {
    /// It was paid.
    Executed,
    /// It was refused terminally.
    Refused,
    /// The bank has never seen the key.
    NeverSeen,
    /// The response does not say whether the payment was made.
    Inconclusive,
}

/// A status alone proves nothing here: a 404 may come from any proxy, a 200 from an HTML page. Each default therefore
/// requires the bank's own status in a JSON body.
const DEFAULTS: [(&str, InquiryResult); 3] = [
    ("200 EXECUTED", InquiryResult::Executed),
    ("200 REFUSED", InquiryResult::Refused),
    ("404 UNKNOWN_KEY", InquiryResult::NeverSeen),
];

/// Classifies responses to inquiries by the setting `inquiry`.
#[derive(Debug)]
pub(super) struct InquiryTable {
    table: StatusTable<InquiryResult>,
    fields: ResponseFields,
}

impl InquiryTable {
    pub(super) fn new(
        configured: &BTreeMap<String, InquiryResult>,
        fields: ResponseFields,
    ) -> Result<Self, SettingError> {
        Ok(Self { table: StatusTable::new("inquiry", &DEFAULTS, configured)?, fields })
    }

    /// Whether a status of the body means paid or not paid, whatever the HTTP status. None if the table has no clear
    /// answer.
    pub(super) fn says_paid(&self, body_status: &str) -> Option<bool> {
        let mut results = self.table.classes_of_code(body_status).map(|result| match result {
            InquiryResult::Executed => Some(true),
            InquiryResult::Refused | InquiryResult::NeverSeen => Some(false),
            InquiryResult::Inconclusive => None,
        });
        let first = results.next()??;
        // A body status with two meanings means nothing without its HTTP status.
        results.all(|other| other == Some(first)).then_some(first)
    }

    /// The result of the inquiry.
    pub(super) fn inquiry(&self, response: &HttpResponse) -> Inquiry {
        if response.ambiguous {
            let message =
                format!("the bank answered the inquiry with HTTP {}, {}", response.status, response::AMBIGUOUS);
            return Inquiry::NoAnswer {
                message,
                rail: response.rail_answer(&self.fields.reference, &self.fields.code),
            };
        }
        let body_status = response.field(&self.fields.status);
        let mut rail = response.rail_answer(&self.fields.reference, &self.fields.code);
        let exact = body_status.and_then(|code| self.table.by_status_and_code(response.status, &code));
        match exact.or_else(|| self.table.by_status(response.status)) {
            Some(InquiryResult::Executed) => Inquiry::Executed(rail),
            Some(InquiryResult::Refused) => {
                let message = Some("the bank says that it refused the payment".to_owned());
                Inquiry::Refused { reason: Reason { code: RAIL_REFUSED.to_owned(), message }, rail }
            }
            Some(InquiryResult::NeverSeen) => Inquiry::NeverSeen,
            Some(InquiryResult::Inconclusive) | None => {
                // Without an end there is no reference to record.
                rail.reference = None;
                let message = format!(
                    "the bank answered the inquiry with HTTP {}, which does not say whether the payment was made",
                    response.status
                );
                // A bank that answers "pending" in its own JSON is healthy. If that counted as a failure, pending
                // payments would keep the circuit breaker open for all others.
                if (200..300).contains(&response.status) && response.body.is_some() {
                    Inquiry::Pending { message, rail }
                } else {
                    Inquiry::NoAnswer { message, rail }
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

    fn inquire(toml: &str, status: u16, body: Option<Value>) -> Inquiry {
        let settings: Settings =
            crate::config::read(format!("url = 'https://x'\n{toml}").parse().unwrap()).unwrap();
        let inquiry_table = InquiryTable::new(&settings.inquiry, settings.response_fields().unwrap()).unwrap();
        inquiry_table.inquiry(&HttpResponse {
            status,
            retry_after: None,
            body,
            ambiguous: false,
            is_replay: false,
        })
    }

    fn is_inconclusive(inquiry: &Inquiry) -> bool {
        matches!(inquiry, Inquiry::NoAnswer { .. } | Inquiry::Pending { .. })
    }

    #[test]
    fn a_pending_payment_is_told_apart_from_a_failing_bank() {
        let works = |status, body| matches!(inquire("", status, body), Inquiry::Pending { .. });
        assert!(works(200, Some(json!({ "status": "PENDING" }))));
        assert!(works(202, Some(json!({}))));
        assert!(!works(200, None));
        for status in [401, 403, 404, 429, 500, 502, 503] {
            assert!(!works(status, Some(json!({ "status": "PENDING" }))), "{status}");
        }
    }

    #[test]
    fn the_default_statuses_of_the_body_are_understood() {
        let executed = inquire("", 200, Some(json!({ "status": "EXECUTED", "reference": "R1" })));
        assert!(matches!(executed, Inquiry::Executed(rail) if rail.reference.as_deref() == Some("R1")));
        let refused = inquire("", 200, Some(json!({ "status": "REFUSED", "code": "AC04" })));
        assert!(matches!(refused, Inquiry::Refused { rail, .. } if rail.code.as_deref() == Some("AC04")));
        assert_eq!(inquire("", 404, Some(json!({ "status": "UNKNOWN_KEY" }))), Inquiry::NeverSeen);
        assert!(is_inconclusive(&inquire("", 200, Some(json!({ "status": "PENDING" })))));
    }

    #[test]
    fn a_status_alone_says_nothing_by_default() {
        for status in 200..600 {
            assert!(is_inconclusive(&inquire("", status, None)), "{status}");
            assert!(
                is_inconclusive(&inquire("", status, Some(json!({ "status": 1, "message": "EXECUTED" })))),
                "{status}"
            );
        }
    }

    #[test]
    fn a_body_status_counts_only_with_its_http_status() {
        assert!(is_inconclusive(&inquire("", 200, Some(json!({ "status": "UNKNOWN_KEY" })))));
        assert!(is_inconclusive(&inquire("", 404, Some(json!({ "status": "EXECUTED" })))));
        assert!(is_inconclusive(&inquire("", 500, Some(json!({ "status": "REFUSED" })))));
        assert!(is_inconclusive(&inquire("", 200, Some(json!({ "status": "executed" })))));
    }

    #[test]
    fn a_body_status_with_two_meanings_says_nothing_by_itself() {
        let configured = BTreeMap::from([
            ("202 EXECUTED".to_owned(), InquiryResult::Inconclusive),
            ("410 REFUSED".to_owned(), InquiryResult::NeverSeen),
        ]);
        let settings: Settings = crate::config::read("url = 'https://x'".parse().unwrap()).unwrap();
        let inquiry_table = InquiryTable::new(&configured, settings.response_fields().unwrap()).unwrap();
        assert_eq!((inquiry_table.says_paid("EXECUTED"), inquiry_table.says_paid("REFUSED")), (None, Some(false)));
        assert_eq!(
            (inquiry_table.says_paid("UNKNOWN_KEY"), inquiry_table.says_paid("PENDING")),
            (Some(false), None)
        );
    }

    #[test]
    fn the_settings_may_name_other_statuses() {
        let configured = "status_key = '/payment/state'\ninquiry = { '200 ACSC' = 'executed', '410' = 'never_seen', '200 EXECUTED' = 'inconclusive' }";
        assert!(matches!(
            inquire(configured, 200, Some(json!({ "payment": { "state": "ACSC" } }))),
            Inquiry::Executed(_)
        ));
        assert!(is_inconclusive(&inquire(configured, 200, Some(json!({ "payment": { "state": "EXECUTED" } })))));
        assert_eq!(inquire(configured, 410, None), Inquiry::NeverSeen);
    }
}
