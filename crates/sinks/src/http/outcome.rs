//! Classifies a bank's response to a payment, and maps the class to the rail's [`Answer`].
//!
//! The table of the setting `outcomes` decides, never the text of a response. A response that is not in the table, or
//! whose body is ambiguous, has an unknown outcome. The engine maps the answer to DISPATCHED, FAILED or RETRYABLE in
//! `crates/relay/src/payment/answer_mapping.rs`.

use serde::Deserialize;
use symphony_db::payment::Reason;
use symphony_relay::rail::Answer;

use super::inquiry::InquiryTable;
use super::response::{self, HttpResponse, ResponseFields};
use super::settings::Settings;
use super::status_table::StatusTable;
use super::{RAIL_REFUSED, RAIL_RETRYABLE};
use crate::config::SettingError;

/// The class of a response. The names in the settings are those of `outcomes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ResponseClass {
    /// The bank has executed the payment.
    Executed,
    /// The bank has the payment and decides later: it is not sent again, and its outcome is inquired about.
    Accepted,
    /// The bank has refused it terminally; nothing was paid.
    Refused,
    /// Nothing was paid, and it may be sent again.
    Retryable,
    /// Retryable if the response has a valid `Retry-After`; otherwise unknown.
    RetryableWithRetryAfter,
    /// The payment may have been made.
    Unknown,
}

/// What the body must be for a response to end a payment. An acceptance ends none, and often has no body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnswerBody {
    /// A JSON object: an error page of a gateway does not come from the bank.
    #[default]
    Json,
    /// Anything, or no body.
    Any,
}

/// The defaults of `outcomes`. `docs/sinks/http.md` gives the reasons.
const DEFAULTS: [(&str, ResponseClass); 9] = [
    ("200", ResponseClass::Executed),
    ("201", ResponseClass::Executed),
    ("202", ResponseClass::Accepted),
    ("400", ResponseClass::Refused),
    ("422", ResponseClass::Refused),
    ("401", ResponseClass::Retryable),
    ("403", ResponseClass::Retryable),
    ("429", ResponseClass::Retryable),
    ("503", ResponseClass::RetryableWithRetryAfter),
];

/// Statuses that reject one request for its size. They are no sign that the rail is failing.
const REQUEST_TOO_LARGE: [u16; 3] = [413, 414, 431];

/// Classifies responses to payments by the setting `outcomes`.
#[derive(Debug)]
pub(super) struct OutcomeTable {
    table: StatusTable<ResponseClass>,
    fields: ResponseFields,
    body: AnswerBody,
}

impl OutcomeTable {
    pub(super) fn new(settings: &Settings) -> Result<Self, SettingError> {
        let mut defaults = DEFAULTS;
        if !settings.can_be_confirmed() {
            // An operator has to ask the bank.
            for (_, class) in defaults.iter_mut().filter(|(_, class)| *class == ResponseClass::Accepted) {
                *class = ResponseClass::Unknown;
            }
        }
        let table = StatusTable::new("outcomes", &defaults, &settings.outcomes)?;
        let accepted = settings.outcomes.iter().find(|(_, class)| **class == ResponseClass::Accepted);
        if let Some((key, _)) = accepted.filter(|_| !settings.can_be_confirmed()) {
            return Err(SettingError::new(
                format!("outcomes.{key:?}"),
                "is \"accepted\", but nothing would ever say what became of the payment: set inquiry_url, or add a \
                 section callback",
            ));
        }
        Ok(Self { table, fields: settings.response_fields()?, body: settings.answer_body })
    }

    /// The rail's answer to a payment: the class of the response, with what the ledger records of it.
    pub(super) fn answer(&self, response: &HttpResponse, inquiry_table: &InquiryTable) -> Answer {
        let rail = response.rail_answer(&self.fields.reference, &self.fields.code);
        let status = response.status;
        let reason = |code: &str| Reason {
            code: code.to_owned(),
            message: Some(format!("the bank answered HTTP {status}")),
        };
        let unknown = |why: &str, rail| Answer::Unknown {
            message: format!("the bank answered HTTP {status}, {why}"),
            rail,
            row_only: REQUEST_TOO_LARGE.contains(&status),
        };
        // A delay of zero would send again without a pause: the rail's backoff decides instead.
        let after = response.retry_after.filter(|after| !after.is_zero());
        match self.classify(response, inquiry_table) {
            Ok(ResponseClass::Executed) if response.is_replay => Answer::ExecutedBefore(rail),
            Ok(ResponseClass::Executed) => Answer::Executed(rail),
            Ok(ResponseClass::Accepted) => Answer::AwaitingConfirmation(rail),
            Ok(ResponseClass::Refused) => Answer::Refused { reason: reason(RAIL_REFUSED), rail },
            Ok(ResponseClass::Retryable) => {
                Answer::Retryable { reason: reason(RAIL_RETRYABLE), rail, retry_after: after }
            }
            Ok(ResponseClass::RetryableWithRetryAfter) => match response.retry_after {
                Some(_) => Answer::Retryable { reason: reason(RAIL_RETRYABLE), rail, retry_after: after },
                None => unknown("without a valid Retry-After", rail),
            },
            Ok(ResponseClass::Unknown) => unknown("which leaves the outcome unknown", rail),
            Err(why) => unknown(why, rail),
        }
    }

    /// The class of a response. The error says why it cannot be classified; the outcome is then unknown.
    fn classify(
        &self,
        response: &HttpResponse,
        inquiry_table: &InquiryTable,
    ) -> Result<ResponseClass, &'static str> {
        // Not even "retryable" may follow: another parser may read that the bank has paid.
        if response.ambiguous {
            return Err(response::AMBIGUOUS);
        }
        let (code, body_status) = (response.field(&self.fields.code), response.field(&self.fields.status));
        let lookup = |field: &Option<String>| {
            field.as_deref().and_then(|field| self.table.by_status_and_code(response.status, field))
        };
        let (by_code, by_body_status) = (lookup(&code), lookup(&body_status));
        if let (Some(by_code), Some(by_body_status)) = (by_code, by_body_status)
            && by_code != by_body_status
        {
            return Err("with a code and a status in its body that contradict each other");
        }
        let by_body = by_code.or(by_body_status);
        let by_http_status = || self.table.by_status(response.status);
        let class = by_body.or_else(by_http_status).ok_or("which is not in the rail's table of outcomes")?;
        if by_body.is_none()
            && class == ResponseClass::Refused
            && [&code, &body_status].into_iter().flatten().any(|word| names_the_key(word))
        {
            return Err("with a code that says that it knows the idempotency key for another request");
        }
        let is_terminal = matches!(class, ResponseClass::Executed | ResponseClass::Refused);
        if is_terminal && self.body == AnswerBody::Json && response.body.is_none() {
            return Err("without a JSON object (set answer_body = \"any\" if the bank never sends one)");
        }
        // The HTTP status alone must not overrule the body: some banks refuse with a 200.
        if let (None, Some(body_status)) = (by_body, &body_status) {
            let says_paid = inquiry_table.says_paid(body_status);
            let agrees = match class {
                ResponseClass::Executed => says_paid == Some(true),
                ResponseClass::Refused => says_paid != Some(true),
                ResponseClass::Accepted => says_paid != Some(false),
                _ => true,
            };
            if !agrees {
                return Err("with a status in its body that contradicts it or is in no table");
            }
        }
        Ok(class)
    }
}

/// Whether a code refuses the idempotency key, and so the request rather than the payment, which may have been made before:
/// `idempotency_error`, `IDEMPOTENCY_KEY_REUSED`, `KEY_REUSED`, `DUPLICATE_KEY`, `key-conflict`.
fn names_the_key(code: &str) -> bool {
    let letters: String =
        code.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    ["idempoten", "keyreuse", "duplicatekey", "keyconflict", "keymismatch"]
        .iter()
        .any(|name| letters.contains(name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn answer(toml: &str, status: u16, retry_after: Option<u64>, body: Option<Value>) -> Answer {
        let settings: Settings =
            crate::config::read(format!("url = 'https://x'\n{toml}").parse().unwrap()).unwrap();
        let inquiry_table = InquiryTable::new(&settings.inquiry, settings.response_fields().unwrap()).unwrap();
        let response = HttpResponse {
            status,
            retry_after: retry_after.map(Duration::from_secs),
            body,
            ambiguous: false,
            is_replay: false,
        };
        OutcomeTable::new(&settings).unwrap().answer(&response, &inquiry_table)
    }

    fn class(answer: &Answer) -> &'static str {
        match answer {
            Answer::Executed(_) | Answer::ExecutedBefore(_) => "executed",
            Answer::AwaitingConfirmation(_) => "accepted",
            Answer::Refused { .. } => "refused",
            Answer::Retryable { .. } => "retryable",
            Answer::Unknown { .. } => "unknown",
        }
    }

    #[test]
    fn by_default_only_these_statuses_have_a_known_outcome() {
        for status in 200..600 {
            let expected = match status {
                200 | 201 => "executed",
                400 | 422 => "refused",
                401 | 403 | 429 => "retryable",
                _ => "unknown",
            };
            assert_eq!(class(&answer("", status, None, Some(json!({})))), expected, "{status}");
            let with_header = if status == 503 { "retryable" } else { expected };
            assert_eq!(
                class(&answer("", status, Some(7), Some(json!({})))),
                with_header,
                "{status} with Retry-After"
            );
        }
    }

    #[test]
    fn a_202_awaits_confirmation_if_the_rail_can_learn_the_outcome() {
        let inquiry = "inquiry_url = 'https://x/{idempotency_key}'\nstatus_key = 'state'";
        for body in
            [None, Some(json!({})), Some(json!({ "state": "PENDING" })), Some(json!({ "state": "EXECUTED" }))]
        {
            assert_eq!(class(&answer(inquiry, 202, None, body.clone())), "accepted", "{body:?}");
            assert_eq!(class(&answer("", 202, None, body.clone())), "unknown", "{body:?}");
        }
        assert_eq!(class(&answer(inquiry, 202, None, Some(json!({ "state": "REFUSED" })))), "unknown");
        let executed = "outcomes = { '202' = 'executed', '200 RCVD' = 'accepted' }";
        let both = format!("{inquiry}\n{executed}");
        assert_eq!(class(&answer(&both, 202, None, Some(json!({})))), "executed");
        assert_eq!(class(&answer(&both, 200, None, Some(json!({ "code": "RCVD" })))), "accepted");
    }

    #[test]
    fn a_rail_that_cannot_learn_the_outcome_of_an_acceptance_is_refused() {
        let settings: Settings =
            crate::config::read("url = 'https://x'\noutcomes = { '202 RCVD' = 'accepted' }".parse().unwrap())
                .unwrap();
        let error = OutcomeTable::new(&settings).unwrap_err().for_rail("sepa").to_string();
        assert!(error.starts_with("rail sepa: outcomes.\"202 RCVD\": is \"accepted\", but nothing"), "{error}");
    }

    #[test]
    fn an_execution_that_repeats_an_earlier_one_says_so() {
        let settings: Settings = crate::config::read("url = 'https://x'".parse().unwrap()).unwrap();
        let inquiry_table = InquiryTable::new(&settings.inquiry, settings.response_fields().unwrap()).unwrap();
        let table = OutcomeTable::new(&settings).unwrap();
        let answer = |status| {
            let body = Some(json!({}));
            table.answer(
                &HttpResponse { status, retry_after: None, body, ambiguous: false, is_replay: true },
                &inquiry_table,
            )
        };
        assert!(matches!(answer(200), Answer::ExecutedBefore(_)));
        assert!(matches!(answer(422), Answer::Refused { .. }));
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
    fn a_retry_after_of_zero_leaves_the_delay_to_the_backoff() {
        for status in [429, 503] {
            for (seconds, expected) in [(0, None), (7, Some(Duration::from_secs(7)))] {
                let Answer::Retryable { retry_after, .. } = answer("", status, Some(seconds), None) else {
                    panic!("not later: {status}");
                };
                assert_eq!(retry_after, expected, "{status}");
            }
        }
    }

    #[test]
    fn a_payment_ends_only_on_a_json_response() {
        for status in [200, 201, 400, 422] {
            assert_eq!(class(&answer("", status, None, None)), "unknown", "{status}");
            assert_ne!(class(&answer("answer_body = 'any'", status, None, None)), "unknown", "{status}");
        }
        assert_eq!(class(&answer("", 429, None, None)), "retryable");
    }

    #[test]
    fn a_code_in_the_body_is_more_exact_than_the_status() {
        let table =
            "outcomes = { '409 DUPLICATE' = 'executed', '422 TRY_LATER' = 'retryable', '422' = 'unknown' }";
        assert_eq!(class(&answer(table, 409, None, Some(json!({ "code": "DUPLICATE" })))), "executed");
        assert_eq!(class(&answer(table, 409, None, Some(json!({ "code": "OTHER" })))), "unknown");
        assert_eq!(class(&answer(table, 422, None, Some(json!({ "code": "TRY_LATER" })))), "retryable");
        assert_eq!(class(&answer(table, 422, None, Some(json!({ "code": "NEW" })))), "unknown");
        assert_eq!(class(&answer(table, 500, None, Some(json!({ "code": "DUPLICATE" })))), "unknown");
    }

    #[test]
    fn an_http_status_alone_does_not_overrule_the_body() {
        let class_of = |status: u16, body_status: &str, toml: &str| {
            super::tests::class(&answer(toml, status, None, Some(json!({ "status": body_status }))))
        };
        assert_eq!(class_of(200, "EXECUTED", ""), "executed");
        for body_status in ["REFUSED", "UNKNOWN_KEY", "PENDING", "RJCT", "executed", ""] {
            assert_eq!(class_of(200, body_status, ""), "unknown", "{body_status}");
        }
        assert_eq!(class_of(422, "EXECUTED", ""), "unknown");
        assert_eq!(class_of(422, "REFUSED", ""), "refused");
        assert_eq!(class_of(422, "INVALID", ""), "refused");
        // Problem details (RFC 9457) repeat the status as a number.
        assert_eq!(class(&answer("", 422, None, Some(json!({ "status": 422 })))), "refused");
        // A body status that is in a table counts.
        assert_eq!(
            class_of(202, "RCVD", "outcomes = { '202 RCVD' = 'executed', '200 RJCT' = 'refused' }"),
            "executed"
        );
        assert_eq!(
            class_of(200, "RJCT", "outcomes = { '202 RCVD' = 'executed', '200 RJCT' = 'refused' }"),
            "refused"
        );
        assert_eq!(class_of(200, "ACSC", "inquiry = { '200 ACSC' = 'executed' }"), "executed");
    }

    #[test]
    fn a_refusal_of_the_key_is_no_refusal_of_the_payment() {
        for code in ["idempotency_error", "IDEMPOTENCY_KEY_REUSED", "KEY_REUSED", "duplicate-key", "KeyConflict"] {
            for (status, field) in [(400, "code"), (422, "code"), (422, "status")] {
                let response = answer("", status, None, Some(json!({ field: code })));
                assert_eq!(class(&response), "unknown", "{status} {code} as {field}");
            }
            let table = format!("outcomes = {{ '422 {code}' = 'refused' }}");
            assert_eq!(class(&answer(&table, 422, None, Some(json!({ "code": code })))), "refused", "{code}");
        }
        for code in ["AC04", "KEY_ACCOUNT_CLOSED", "DUPLICATE_PAYMENT"] {
            assert_eq!(class(&answer("", 422, None, Some(json!({ "code": code })))), "refused", "{code}");
        }
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
            (RAIL_REFUSED, Some("the bank answered HTTP 422"))
        );
        assert_eq!((rail.reference.as_deref(), rail.code.as_deref()), (Some("7"), Some("AC04")));
        let Answer::Executed(rail) = answer("", 201, None, Some(json!({}))) else { panic!("not executed") };
        assert_eq!((rail.reference, rail.code.as_deref()), (None, Some("HTTP 201")));
    }
}
