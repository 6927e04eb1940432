//! Checks of bodies: large ones, unknown fields, and what is no payment.

use serde_json::{Map, Value, json};
use symphony_relay::rail::Payment;

use super::report::{Check, Outcome, Report};
use super::suite::{Suite, changed};

/// The largest payload that the database takes.
const LARGEST_PAYLOAD: usize = 262_144;
/// What the database's form of a payload may need beyond its text.
const OVERHEAD: usize = 1024;

const LARGE: Check = Check {
    group: "bodies",
    name: "a large payload is executed",
    tried: "a payment with the largest payload that the database and the rail's max_bytes allow",
    expected: "executed",
    advice: "read bodies of up to 320 KiB, or set max_bytes of the rail to what the adapter takes: a larger payment is then refused \
             before it is sent",
};

const UNKNOWN_FIELDS: Check = Check {
    group: "bodies",
    name: "unknown fields and headers are ignored",
    tried: "a payment with further fields in its body and its payload, and a further header",
    expected: "executed",
    advice: "ignore what you do not know: a later version of Symphony may send more",
};

const MALFORMED: Check = Check {
    group: "bodies",
    name: "a body that is no payment is refused",
    tried: "signed requests with truncated JSON, no body, a list, invalid UTF-8, and 10,000 levels of nesting",
    expected: "HTTP 400 or 422 for each, and nothing is executed",
    advice: "parse the body strictly and answer 400. A 500 is an unknown outcome, which costs an inquiry for each attempt",
};

const NO_AMOUNT: Check = Check {
    group: "bodies",
    name: "a payment without an amount is refused",
    tried: "a payment whose payload has no amount",
    expected: "HTTP 400 or 422, and nothing is executed",
    advice: "check the payload before you pay, and answer 400 or 422 with a code",
};

const AFTERWARDS: Check = Check {
    group: "bodies",
    name: "the adapter still works afterwards",
    tried: "a payment after all of these requests",
    expected: "executed; the inquiry finds it",
    advice: "a bad request must not stop the adapter",
};

pub(super) async fn run(suite: &Suite, report: &mut Report) {
    report.add(&LARGE, large(suite).await.into());
    report.add(&UNKNOWN_FIELDS, unknown_fields(suite).await);
    report.add(&MALFORMED, malformed(suite).await.into());
    report.add(&NO_AMOUNT, no_amount(suite).await.into());
    report.add(&AFTERWARDS, afterwards(suite).await.into());
}

async fn large(suite: &Suite) -> Result<String, String> {
    let mut payment = suite.payment("large");
    let limit = LARGEST_PAYLOAD.min(suite.rail().max_bytes);
    let filler = limit.saturating_sub(payment.payload.as_json().len() + OVERHEAD);
    payment.payload = changed(suite.payload(), &[("symphony_check_filler", json!("x".repeat(filler)))]);
    let reply = suite.pay(&payment).await;
    let got = format!("{} bytes: {}", payment.payload.as_json().len(), reply.describe());
    let Some(reference) = reply.reference() else { return Err(got) };
    suite.is_executed(&payment, reference).await?;
    Ok(got)
}

async fn unknown_fields(suite: &Suite) -> Outcome {
    let mut payment = suite.payment("unknown-fields");
    let unknown = json!({ "nested": [1, null, "text"] });
    payment.payload = changed(suite.payload(), &[("symphony_check_field", unknown.clone())]);
    let with_unknown = suite.body(&payment).and_then(|body| {
        let mut envelope: Map<String, Value> = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        envelope.insert("symphony_check_field".to_owned(), unknown);
        Ok(Value::Object(envelope).to_string().into_bytes())
    });
    let sent = match with_unknown {
        Ok(body) => suite.request_with_body(&payment, body).await,
        Err(why) => Err(why),
    };
    let mut request = match sent {
        Ok(request) => request,
        Err(why) => return Outcome::Failed(why),
    };
    request.headers_mut().insert("symphony-check", reqwest::header::HeaderValue::from_static("unknown"));
    let reply = suite.send(request).await;
    match reply.reference() {
        Some(_) => Outcome::Passed(reply.describe()),
        None => Outcome::Failed(reply.describe()),
    }
}

async fn malformed(suite: &Suite) -> Result<String, String> {
    let whole = suite.payment("malformed-truncated");
    let text = suite.body(&whole)?;
    let bodies = [
        ("truncated", text[..text.len() / 2].to_vec()),
        ("empty", Vec::new()),
        ("list", b"[]".to_vec()),
        ("utf8", b"{\"instruction_id\":\"\xff\xfe\"}".to_vec()),
        ("nested", "[".repeat(10_000).into_bytes()),
    ];
    for (name, body) in bodies {
        let payment = suite.payment(&format!("malformed-{name}"));
        let reply = suite.send(suite.request_with_body(&payment, body).await?).await;
        let got = format!("{name}: {}", reply.describe());
        suite.is_not_executed(&payment).await.map_err(|after| format!("{got}; {after}"))?;
        if !reply.status.is_some_and(|status| (400..500).contains(&status)) {
            return Err(got);
        }
    }
    Ok("each refused".to_owned())
}

async fn no_amount(suite: &Suite) -> Result<String, String> {
    let payment =
        Payment { payload: changed(suite.payload(), &[("amount", Value::Null)]), ..suite.payment("no-amount") };
    let reply = suite.pay(&payment).await;
    let got = reply.describe();
    suite.is_not_executed(&payment).await.map_err(|after| format!("{got}; {after}"))?;
    if reply.is_refused() { Ok(got) } else { Err(got) }
}

async fn afterwards(suite: &Suite) -> Result<String, String> {
    let payment = suite.payment("afterwards");
    let reference = suite.pay_for_reference(&payment).await?;
    suite.is_executed(&payment, &reference).await?;
    Ok(format!("executed and found, reference {reference}"))
}
