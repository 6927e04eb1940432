//! Checks of inquiries: what the adapter says of a key must be true.

use symphony_relay::rail::Inquiry;

use super::report::{Check, Report};
use super::suite::{Suite, said};

const NEVER_SEEN: Check = Check {
    group: "inquiries",
    name: "a key that was never sent is never seen",
    tried: "the inquiry about a new key, twice, and then the payment",
    expected: "HTTP 404 {\"status\":\"UNKNOWN_KEY\"} twice; then the payment is executed",
    advice: "answer 404 with this body for an unknown key, and let an inquiry store nothing. A 404 of a proxy proves nothing, so \
             the body is needed",
};

const EXECUTED: Check = Check {
    group: "inquiries",
    name: "a payment that was made is found",
    tried: "a payment, and its inquiry",
    expected: "HTTP 200 {\"status\":\"EXECUTED\",\"reference\":…} with the reference of the payment",
    advice: "answer from the store that the payment was written to. \"Never seen\" of a payment that was made leads to a second one",
};

pub(super) async fn run(suite: &Suite, report: &mut Report) {
    report.add(&NEVER_SEEN, never_seen(suite).await.into());
    report.add(&EXECUTED, executed(suite).await.into());
}

async fn never_seen(suite: &Suite) -> Result<String, String> {
    let payment = suite.payment("never-seen");
    for _ in 0..2 {
        match suite.inquire(&payment).await {
            Inquiry::NeverSeen => {}
            other => return Err(said(&other)),
        }
    }
    let reference = suite.pay_for_reference(&payment).await.map_err(|got| format!("the payment: {got}"))?;
    Ok(format!("never seen twice; then executed, reference {reference}"))
}

async fn executed(suite: &Suite) -> Result<String, String> {
    let payment = suite.payment("executed");
    let reference = suite.pay_for_reference(&payment).await?;
    suite.is_executed(&payment, &reference).await?;
    Ok(format!("executed, reference {reference}"))
}
