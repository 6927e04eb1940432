//! Verifies and reads callbacks: signed requests by which a bank reports the outcome of a payment by itself.
//!
//! The bank signs by the Standard Webhooks scheme, as this rail signs its requests. The settings say where the body has the idempotency key
//! and the status, and what each status means; a status that they do not name is refused, so that no outcome is lost in silence.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use symphony_db::payment::{RailAnswer, Reason};
use symphony_relay::rail::{Callback, CallbackError, CallbackOutcome, CallbackRequest};

use super::RAIL_REFUSED;
use super::credentials;
use super::json::{self, Body};
use super::response::{FieldPath, ResponseFields, field, printable};
use super::signature::Signer;
use crate::config::{self, SettingError, duration};
use crate::secret::OneOrMany;

/// The largest value of `tolerance`: a message that was recorded on the way can be sent again for as long.
const MAX_TOLERANCE: Duration = Duration::from_secs(3600);
/// The longest message id and idempotency key that the database takes.
const MAX_CHARS: usize = 200;

/// The section `callback` of an HTTP rail.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    secret_env: Option<OneOrMany>,
    secret_file: Option<OneOrMany>,
    #[serde(default = "config::seconds::<300>", deserialize_with = "duration")]
    tolerance: Duration,
    #[serde(default = "payment_key")]
    payment_key: String,
    reference_key: Option<String>,
    code_key: Option<String>,
    status_key: Option<String>,
    #[serde(default)]
    outcomes: BTreeMap<String, CallbackClass>,
}

/// What a status in a callback means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CallbackClass {
    /// It was paid.
    Executed,
    /// It was refused terminally.
    Refused,
    /// The bank has not decided yet.
    Pending,
}

/// The defaults of `outcomes`: the words of the inquiry.
const DEFAULTS: [(&str, CallbackClass); 3] = [
    ("EXECUTED", CallbackClass::Executed),
    ("REFUSED", CallbackClass::Refused),
    ("PENDING", CallbackClass::Pending),
];

/// Reads the callbacks of one rail.
pub(super) struct CallbackReader {
    signer: Signer,
    tolerance: Duration,
    payment_key: FieldPath,
    fields: ResponseFields,
    outcomes: BTreeMap<String, CallbackClass>,
}

fn payment_key() -> String {
    "idempotency_key".to_owned()
}

impl CallbackReader {
    /// Reads the secrets. Fields that the section does not name are those of replies.
    pub(super) fn new(settings: &Settings, replies: ResponseFields) -> Result<Self, SettingError> {
        let signer = credentials::read_secrets(
            settings.secret_env.as_ref(),
            settings.secret_file.as_ref(),
            ("callback.secret_env", "callback.secret_file"),
        )?;
        if signer.is_empty() {
            return Err(SettingError::new(
                "callback",
                "needs secret_env or secret_file: without a secret, anyone who reaches the address could settle payments",
            ));
        }
        if settings.tolerance.is_zero() || settings.tolerance > MAX_TOLERANCE {
            return Err(SettingError::new("callback.tolerance", "must be above zero and at most \"1h\""));
        }
        let path = |setting, text: &Option<String>, default: FieldPath| match text {
            Some(text) => FieldPath::parse(setting, text),
            None => Ok(default),
        };
        let defaults = DEFAULTS.iter().map(|(word, class)| ((*word).to_owned(), *class));
        let configured = settings.outcomes.iter().map(|(word, class)| (word.clone(), *class));
        if let Some(blank) = settings.outcomes.keys().find(|word| word.trim() != word.as_str() || word.is_empty())
        {
            return Err(SettingError::new(
                format!("callback.outcomes.{blank:?}"),
                "must be a word of the bank without blanks around it",
            ));
        }
        Ok(Self {
            signer,
            tolerance: settings.tolerance,
            payment_key: FieldPath::parse("callback.payment_key", &settings.payment_key)?,
            fields: ResponseFields {
                reference: path("callback.reference_key", &settings.reference_key, replies.reference)?,
                code: path("callback.code_key", &settings.code_key, replies.code)?,
                status: path("callback.status_key", &settings.status_key, replies.status)?,
            },
            outcomes: defaults.chain(configured).collect(),
        })
    }

    /// Verifies the signature first, then the age, and parses the body last.
    pub(super) fn read(&self, request: &CallbackRequest<'_>) -> Result<Callback, CallbackError> {
        let header = |name| request.header(name).ok_or(CallbackError::NotSigned);
        let (id, signatures) = (header("webhook-id")?, header("webhook-signature")?);
        let timestamp = header("webhook-timestamp")?;
        // Digits alone: the signature covers the text of the number.
        let digits = (1..=12).contains(&timestamp.len()) && timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let timestamp: u64 = timestamp
            .parse()
            .ok()
            .filter(|number: &u64| digits && number.to_string() == timestamp)
            .ok_or(CallbackError::NotSigned)?;
        if !self.signer.verify(id, timestamp, request.body, signatures) {
            return Err(CallbackError::NotSigned);
        }
        let now = request.received_at_unix_seconds;
        if now.abs_diff(timestamp) > self.tolerance.as_secs() {
            return Err(CallbackError::WrongTime { seconds_off: now.abs_diff(timestamp) });
        }
        let malformed = |what: &str| CallbackError::Malformed { message: what.to_owned() };
        if id.trim().is_empty() || id.chars().count() > MAX_CHARS {
            return Err(malformed("webhook-id must have 1 to 200 characters"));
        }
        let Body::Object(body) = json::read(request.body) else {
            return Err(malformed("the body must be one JSON object without duplicate keys"));
        };
        let key = field(&body, &self.payment_key)
            .filter(|key| !key.trim().is_empty() && key.chars().count() <= MAX_CHARS)
            .ok_or_else(|| malformed("the body has no idempotency key where the setting payment_key says"))?;
        let status = field(&body, &self.fields.status)
            .ok_or_else(|| malformed("the body has no status where the setting status_key says"))?;
        let text = |path| field(&body, path).and_then(|text| printable(&text));
        let rail = RailAnswer {
            reference: text(&self.fields.reference),
            code: text(&self.fields.code).or_else(|| printable(&status)),
        };
        let outcome = match self.outcomes.get(&status) {
            Some(CallbackClass::Executed) => CallbackOutcome::Executed(rail),
            Some(CallbackClass::Refused) => {
                let message = Some("the bank says in a callback that it refused the payment".to_owned());
                CallbackOutcome::Refused { reason: Reason { code: RAIL_REFUSED.to_owned(), message }, rail }
            }
            Some(CallbackClass::Pending) => CallbackOutcome::Pending,
            None => return Err(malformed("the status of the body is not in the setting callback.outcomes")),
        };
        Ok(Callback { id: id.to_owned(), idempotency_key: key, outcome })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::settings;
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const NOW: u64 = 1_700_000_000;

    fn build(more: &str, secret: &str) -> Result<CallbackReader, SettingError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, secret).unwrap();
        let toml = format!("url = 'https://x'\n[callback]\nsecret_file = {path:?}\n{more}");
        let settings: settings::Settings = crate::config::read(toml.parse().unwrap()).unwrap();
        CallbackReader::new(settings.callback.as_ref().unwrap(), settings.response_fields().unwrap())
    }

    fn signed(id: &str, timestamp: u64, body: &str) -> Vec<(String, String)> {
        let mut signer = Signer::none();
        signer.add(SECRET).unwrap();
        let signature = signer.sign(id, timestamp, body.as_bytes());
        [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", timestamp.to_string()),
            ("webhook-signature", signature),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    fn read(reader: &CallbackReader, headers: &[(String, String)], body: &str) -> Result<Callback, CallbackError> {
        reader.read(&CallbackRequest { headers, body: body.as_bytes(), received_at_unix_seconds: NOW })
    }

    #[test]
    fn a_signed_callback_says_what_became_of_which_payment() {
        let reader = build("", SECRET).unwrap();
        let body = json!({ "idempotency_key": "pay-1", "status": "EXECUTED", "reference": "R7" }).to_string();
        let callback = read(&reader, &signed("m1", NOW, &body), &body).unwrap();
        let rail = RailAnswer { reference: Some("R7".into()), code: Some("EXECUTED".into()) };
        assert_eq!(
            callback,
            Callback {
                id: "m1".into(),
                idempotency_key: "pay-1".into(),
                outcome: CallbackOutcome::Executed(rail)
            }
        );

        let settings = "payment_key = '/data/key'\nstatus_key = '/data/state'\ncode_key = '/data/why'\n\
                        outcomes = { RJCT = 'refused', ACSP = 'pending' }";
        let reader = build(settings, SECRET).unwrap();
        let body = json!({ "data": { "key": "pay-2", "state": "RJCT", "why": "AC04" } }).to_string();
        let callback = read(&reader, &signed("m2", NOW, &body), &body).unwrap();
        let CallbackOutcome::Refused { reason, rail } = callback.outcome else { panic!("not refused") };
        assert_eq!((reason.code.as_str(), rail.code.as_deref()), (RAIL_REFUSED, Some("AC04")));
        let body = json!({ "data": { "key": "pay-2", "state": "ACSP" } }).to_string();
        assert_eq!(read(&reader, &signed("m3", NOW, &body), &body).unwrap().outcome, CallbackOutcome::Pending);
    }

    #[test]
    fn each_described_callback_has_the_class_that_the_description_says() {
        let description: serde_json::Value =
            serde_json::from_str(include_str!("../../../../docs/adapter-openapi.json")).unwrap();
        let request = &description["webhooks"]["paymentOutcome"]["post"]["requestBody"];
        let examples = request["content"]["application/json"]["examples"].as_object().unwrap();
        assert_eq!(examples.len(), 3);
        let reader = build("", SECRET).unwrap();
        for example in examples.values() {
            let body = example["value"].to_string();
            let callback = read(&reader, &signed("m1", NOW, &body), &body).unwrap();
            let class = match callback.outcome {
                CallbackOutcome::Executed(_) => "executed",
                CallbackOutcome::Refused { .. } => "refused",
                CallbackOutcome::Pending => "pending",
            };
            assert_eq!(
                (class, callback.idempotency_key.as_str()),
                (example["x-symphony-class"].as_str().unwrap(), "9f1c-invoice-4711")
            );
        }
    }

    #[test]
    fn a_forged_callback_is_refused_before_its_body_is_parsed() {
        let reader = build("", SECRET).unwrap();
        let body = "{";
        let headers = signed("m1", NOW, "{}");
        assert_eq!(read(&reader, &headers, body), Err(CallbackError::NotSigned));
        assert_eq!(read(&reader, &[], body), Err(CallbackError::NotSigned));
        for missing in 0..3 {
            let mut headers = signed("m1", NOW, body);
            headers.remove(missing);
            assert_eq!(read(&reader, &headers, body), Err(CallbackError::NotSigned));
        }
        // A second header of the same name: which one was verified?
        let mut twice = signed("m1", NOW, body);
        twice.push(("webhook-id".into(), "m2".into()));
        assert_eq!(read(&reader, &twice, body), Err(CallbackError::NotSigned));
        for timestamp in ["", "x", "-1", "+1700000000", "01700000000", "99999999999999999999"] {
            let mut headers = signed("m1", NOW, body);
            headers[1].1 = timestamp.to_owned();
            assert_eq!(read(&reader, &headers, body), Err(CallbackError::NotSigned), "{timestamp}");
        }
    }

    #[test]
    fn a_callback_outside_the_tolerance_is_refused() {
        let reader = build("tolerance = '60s'", SECRET).unwrap();
        let body = json!({ "idempotency_key": "pay-1", "status": "EXECUTED" }).to_string();
        for (timestamp, seconds_off) in
            [(NOW - 61, Some(61)), (NOW + 61, Some(61)), (NOW - 60, None), (NOW + 60, None)]
        {
            let refused = read(&reader, &signed("m", timestamp, &body), &body).err();
            assert_eq!(refused, seconds_off.map(|seconds_off| CallbackError::WrongTime { seconds_off }));
        }
    }

    #[test]
    fn a_body_that_does_not_name_payment_and_status_is_refused() {
        let reader = build("", SECRET).unwrap();
        for body in [
            "",
            "[]",
            "{}{}",
            r#"{"idempotency_key":"a","idempotency_key":"b","status":"EXECUTED"}"#,
            r#"{"idempotency_key":"","status":"EXECUTED"}"#,
            r#"{"idempotency_key":["a"],"status":"EXECUTED"}"#,
            r#"{"status":"EXECUTED"}"#,
            r#"{"idempotency_key":"a"}"#,
            r#"{"idempotency_key":"a","status":"executed"}"#,
        ] {
            let refused = read(&reader, &signed("m", NOW, body), body);
            assert!(matches!(refused, Err(CallbackError::Malformed { .. })), "{body}: {refused:?}");
        }
        let body = format!(r#"{{"idempotency_key":"{}","status":"EXECUTED"}}"#, "k".repeat(201));
        assert!(read(&reader, &signed("m", NOW, &body), &body).is_err());
    }

    #[test]
    fn wrong_settings_are_refused_with_what_to_write() {
        let refusal = |more, secret| build(more, secret).err().unwrap().for_rail("sepa").to_string();
        assert!(refusal("", " ").contains("callback.secret_file"));
        assert!(refusal("", "secret").starts_with("rail sepa: callback.secret_file: must contain secrets"));
        assert!(refusal("tolerance = '2h'", SECRET).starts_with("rail sepa: callback.tolerance: must be"));
        assert!(refusal("payment_key = ''", SECRET).starts_with("rail sepa: callback.payment_key: must be"));
        assert!(
            refusal("outcomes = { ' X' = 'executed' }", SECRET).starts_with("rail sepa: callback.outcomes.\" X\"")
        );
        let toml = "url = 'https://x'\n[callback]";
        let settings: settings::Settings = crate::config::read(toml.parse().unwrap()).unwrap();
        let error = CallbackReader::new(settings.callback.as_ref().unwrap(), settings.response_fields().unwrap());
        assert!(
            error.err().unwrap().for_rail("sepa").to_string().starts_with("rail sepa: callback: needs secret_env")
        );
    }
}
