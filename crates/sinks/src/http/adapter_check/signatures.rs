//! Checks of signatures: a request that the relayer did not sign, or signed for something else, must do nothing.

use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::Request;
use reqwest::header::{HeaderMap, HeaderValue};
use symphony_relay::rail::Inquiry;

use super::report::{Check, Outcome, Report};
use super::suite::{Suite, changed, said};
use crate::http::credentials::{WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP};
use crate::http::signature::Signer;

/// The secret of a stranger.
const FORGED_SECRET: &str = "whsec_c3ltcGhvbnktY2hlY2stZm9yZ2VkLXNlY3JldA==";
/// Twice what the scheme tolerates.
const SKEW_SECONDS: u64 = 600;

/// Changes a request after it was signed.
type Change = fn(&Suite, &mut Request) -> Result<(), String>;

const GROUP: &str = "signatures";
const REFUSED: &str = "HTTP 401 or 403, and nothing is executed";
const ADVICE: &str = "check the signature over webhook-id, webhook-timestamp and the raw body before anything else, and answer 401. \
                      400 and 422 would record the payment as FAILED when a secret is wrong";

const FORGED: Check = Check {
    group: GROUP,
    name: "a signature by another secret is refused",
    tried: "a payment that is signed by another secret",
    expected: REFUSED,
    advice: ADVICE,
};

const MISSING: Check = Check {
    group: GROUP,
    name: "a payment without a signature is refused",
    tried: "a payment without the headers webhook-id, webhook-timestamp and webhook-signature",
    expected: REFUSED,
    advice: ADVICE,
};

const OLD: Check = Check {
    group: GROUP,
    name: "an old signature is refused",
    tried: "a payment that was signed 10 minutes ago",
    expected: REFUSED,
    advice: "refuse a webhook-timestamp that is more than 5 minutes off; keep the adapter's clock synchronised",
};

const FUTURE: Check = Check {
    group: GROUP,
    name: "a signature of the future is refused",
    tried: "a payment that is signed for 10 minutes from now",
    expected: REFUSED,
    advice: "refuse a webhook-timestamp that is more than 5 minutes off, in both directions",
};

const ALTERED: Check = Check {
    group: GROUP,
    name: "an altered body is refused",
    tried: "a payment whose amount was changed after it was signed",
    expected: REFUSED,
    advice: ADVICE,
};

const OTHER_KEY: Check = Check {
    group: GROUP,
    name: "a key that was not signed is not paid under",
    tried: "a signed payment that was already made, with another key in the header Idempotency-Key",
    expected: "HTTP 4xx, or the reference of the payment that was signed",
    advice: "the header Idempotency-Key is not signed: compare it with webhook-id and with idempotency_key of the body. Otherwise a \
             request that was recorded can be paid again under another key",
};

const ROTATED: Check = Check {
    group: GROUP,
    name: "one valid signature among several is enough",
    tried: "a payment with a signature by another secret before the right one, as during a rotation",
    expected: "HTTP 200 or 201",
    advice: "split webhook-signature at spaces and accept the request if any of them matches",
};

const INQUIRY_FORGED: Check = Check {
    group: GROUP,
    name: "an inquiry with a wrong or missing signature is refused",
    tried: "inquiries about a payment that was made: one signed by another secret, one unsigned",
    expected: "HTTP 401 or 403",
    advice: "check the signature of inquiries too, over webhook-id, webhook-timestamp and an empty body",
};

const INQUIRY_OTHER_KEY: Check = Check {
    group: GROUP,
    name: "an inquiry that was signed for another key is refused",
    tried: "an inquiry about one key, signed for another",
    expected: "HTTP 401 or 403",
    advice: "compare webhook-id with the key in the path",
};

pub(super) async fn run(suite: &Suite, report: &mut Report) {
    if !suite.credentials().is_signed() {
        let why =
            "needs --secret-file or --secret-env. Without a signature, everyone who reaches the adapter can pay";
        for check in [FORGED, MISSING, OLD, FUTURE, ALTERED, OTHER_KEY, ROTATED, INQUIRY_FORGED, INQUIRY_OTHER_KEY]
        {
            report.add(&check, Outcome::Skipped(why.to_owned()));
        }
        return;
    }
    report.add(&FORGED, refuses(suite, "forged", forge).await.into());
    report.add(&MISSING, refuses(suite, "unsigned", remove).await.into());
    report.add(&OLD, refuses(suite, "old", |suite, request| sign_at(suite, request, -1)).await.into());
    report.add(&FUTURE, refuses(suite, "future", |suite, request| sign_at(suite, request, 1)).await.into());
    report.add(&ALTERED, refuses(suite, "altered", alter).await.into());
    report.add(&OTHER_KEY, other_key(suite).await.into());
    report.add(&ROTATED, rotated(suite).await.into());
    report.add(&INQUIRY_FORGED, inquiry_forged(suite).await.into());
    report.add(&INQUIRY_OTHER_KEY, inquiry_other_key(suite).await);
}

/// Sends a payment whose request was changed; fails unless it was refused and not executed.
async fn refuses(suite: &Suite, name: &str, change: Change) -> Result<String, String> {
    let payment = suite.payment(name);
    let mut request = suite.request(&payment).await?;
    change(suite, &mut request)?;
    let reply = suite.send(request).await;
    let got = reply.describe();
    suite.is_not_executed(&payment).await.map_err(|after| format!("{got}; {after}"))?;
    // The rail's own table may say of another status that it is no outcome of the payment. A rate limit is no refusal.
    let is_mapped = reply.is_retryable() && !matches!(reply.status, Some(429 | 503));
    if is_unauthorized(reply.status) || is_mapped { Ok(got) } else { Err(got) }
}

fn is_unauthorized(status: Option<u16>) -> bool {
    matches!(status, Some(401 | 403))
}

fn forge(_: &Suite, request: &mut Request) -> Result<(), String> {
    let signature = forged(request)?;
    set(request.headers_mut(), &signature)
}

/// The signature of a stranger for this request.
fn forged(request: &Request) -> Result<String, String> {
    let mut signer = Signer::none();
    signer.add(FORGED_SECRET).ok_or("the suite's own secret is no secret")?;
    Ok(signer.sign(header(request, WEBHOOK_ID.as_str())?, now(), body(request)))
}

fn set(headers: &mut HeaderMap, signature: &str) -> Result<(), String> {
    let value = HeaderValue::from_str(signature).map_err(|error| error.to_string())?;
    headers.insert(WEBHOOK_SIGNATURE, value);
    Ok(())
}

fn remove(_: &Suite, request: &mut Request) -> Result<(), String> {
    for name in [WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE] {
        request.headers_mut().remove(name);
    }
    Ok(())
}

/// Signs with a time that is off, in the past (-1) or the future (1).
fn sign_at(suite: &Suite, request: &mut Request, direction: i8) -> Result<(), String> {
    let at = if direction < 0 { now().saturating_sub(SKEW_SECONDS) } else { now() + SKEW_SECONDS };
    let id = header(request, WEBHOOK_ID.as_str())?.to_owned();
    let body = body(request).to_vec();
    suite.credentials().sign(request.headers_mut(), &id, at, &body).map_err(|invalid| invalid.message)
}

fn alter(suite: &Suite, request: &mut Request) -> Result<(), String> {
    let mut payment = suite.payment("altered");
    payment.payload = changed(suite.payload(), &[("amount", "1000000".into())]);
    *request.body_mut() = Some(suite.body(&payment)?.into());
    Ok(())
}

async fn other_key(suite: &Suite) -> Result<String, String> {
    let payment = suite.payment("signed-key");
    let reference = suite.pay_for_reference(&payment).await?;
    let forged = suite.payment("unsigned-key");
    let mut request = suite.request(&payment).await?;
    let key = HeaderValue::from_str(&forged.idempotency_key).map_err(|error| error.to_string())?;
    request.headers_mut().insert(suite.rail().idempotency_header.clone(), key);
    let reply = suite.send(request).await;
    let got = reply.describe();
    suite.is_not_executed(&forged).await.map_err(|after| format!("{got}; {after}"))?;
    let is_refused = reply.status.is_some_and(|status| (400..500).contains(&status));
    if is_refused || reply.reference() == Some(&reference) {
        Ok(got)
    } else {
        Err(format!("{got}; the signed payment had the reference {reference}"))
    }
}

async fn rotated(suite: &Suite) -> Result<String, String> {
    let payment = suite.payment("rotated");
    let mut request = suite.request(&payment).await?;
    let both = format!("{} {}", forged(&request)?, header(&request, WEBHOOK_SIGNATURE.as_str())?);
    set(request.headers_mut(), &both)?;
    let reply = suite.send(request).await;
    if reply.reference().is_some() { Ok(reply.describe()) } else { Err(reply.describe()) }
}

async fn inquiry_forged(suite: &Suite) -> Result<String, String> {
    let payment = suite.payment("inquiry-forged");
    suite.pay_for_reference(&payment).await?;
    let changes: [(&str, Change); 2] = [("signed by another secret", forge), ("unsigned", remove)];
    for (what, change) in changes {
        let mut request = suite.inquiry_request(&payment).await?;
        change(suite, &mut request)?;
        let (status, inquiry) = suite.send_inquiry(request).await;
        if !is_unauthorized(status) {
            return Err(format!("{what}: {}, {}", shown(status), said(&inquiry)));
        }
    }
    Ok("both refused".to_owned())
}

async fn inquiry_other_key(suite: &Suite) -> Outcome {
    let (asked, signed) = (suite.payment("inquiry-asked"), suite.payment("inquiry-signed"));
    if let Err(got) = suite.pay_for_reference(&asked).await {
        return Outcome::Failed(got);
    }
    let (mut request, other) = match (suite.inquiry_request(&asked).await, suite.inquiry_request(&signed).await) {
        (Ok(request), Ok(other)) => (request, other),
        (Err(why), _) | (_, Err(why)) => return Outcome::Failed(why),
    };
    *request.headers_mut() = other.headers().clone();
    let (status, inquiry) = suite.send_inquiry(request).await;
    let got = format!("{}, {}", shown(status), said(&inquiry));
    // An attacker who has recorded inquiries could ask about other keys for five minutes, and no more.
    let is_refused = status.is_some_and(|status| (400..500).contains(&status));
    if is_refused && inquiry != Inquiry::NeverSeen { Outcome::Passed(shown(status)) } else { Outcome::Warned(got) }
}

fn shown(status: Option<u16>) -> String {
    status.map_or_else(|| "no response".to_owned(), |status| format!("HTTP {status}"))
}

fn header<'a>(request: &'a Request, name: &str) -> Result<&'a str, String> {
    let value = request.headers().get(name).and_then(|value| value.to_str().ok());
    value.ok_or_else(|| format!("the request has no header {name}"))
}

fn body(request: &Request) -> &[u8] {
    request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
