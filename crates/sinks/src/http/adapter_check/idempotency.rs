//! Checks of idempotency: one key is one payment, also for requests that arrive at the same time.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use symphony_relay::rail::Payment;
use tokio::task::JoinSet;

use super::report::{Check, Outcome, Report};
use super::suite::{Reply, Suite, changed};

/// How often requests with one key are sent at once. A race that an adapter loses now and then shows in one of them.
const ROUNDS: usize = 4;

const REPEATED: Check = Check {
    group: "idempotency",
    name: "a repeated payment gets its first answer",
    tried: "the same payment again, signed anew",
    expected: "HTTP 200 or 201, with the reference of the first answer, or HTTP 202 and an inquiry that has it",
    advice: "store the key with its outcome before you answer, and answer a known key from there",
};

const MARKED: Check = Check {
    group: "idempotency",
    name: "a repeated answer is marked",
    tried: "the same payment again, signed anew",
    expected: "the header Idempotent-Replay: true",
    advice: "send Idempotent-Replay: true with each answer to a known key. On a first attempt it shows that the database has lost \
             an earlier one",
};

const CONCURRENT: Check = Check {
    group: "idempotency",
    name: "payments with one key at once are executed once",
    tried: "the same new payment over many connections at once, several times",
    expected: "one reference in every success; 409 at most for the others; the same reference afterwards",
    advice: "claim the key in one atomic step, such as an INSERT with a unique key, before you pay. Answer 409 while it is in \
             progress",
};

const OTHER_AMOUNT: Check = Check {
    group: "idempotency",
    name: "another amount under a known key is refused as unknown",
    tried: "a second payment under a key that was paid, with another amount",
    expected: "HTTP 409 (unknown outcome); the inquiry still has the first reference",
    advice: "compare the payload with the stored one and answer 409. A success would record a payment that was not made; 400 and \
             422 would record one that was made as FAILED, unless their code names the key",
};

const OTHER_SEQUENCE: Check = Check {
    group: "idempotency",
    name: "another sequence number under a known key is no second payment",
    tried: "the same payment with another Symphony-Sequence-Id, as after a redrive",
    expected: "the first reference, or HTTP 409 (unknown outcome)",
    advice: "ignore Symphony-Sequence-Id: it is not signed, and no part of the payment",
};

const REFUSED: Check = Check {
    group: "idempotency",
    name: "a refused payment stays refused",
    tried: "a payment that the adapter refuses, twice, and its inquiry",
    expected: "HTTP 400 or 422 twice; the inquiry says refused or never seen",
    advice: "store refusals under their keys too, or leave no trace of them; never execute them later",
};

pub(super) async fn run(suite: &Arc<Suite>, report: &mut Report) {
    repeated(suite, report).await;
    report.add(&CONCURRENT, concurrent(suite).await.into());
    report.add(&OTHER_AMOUNT, other_amount(suite).await.into());
    report.add(&OTHER_SEQUENCE, other_sequence(suite).await.into());
    let refused = match suite.refused_payment("refused") {
        Some(payment) => refused(suite, &payment).await.into(),
        None => {
            Outcome::Skipped("needs --refused-payload-file, with a payload that the adapter refuses".to_owned())
        }
    };
    report.add(&REFUSED, refused);
}

async fn repeated(suite: &Suite, report: &mut Report) {
    let payment = suite.payment("repeated");
    let reference = match suite.pay_for_reference(&payment).await {
        Ok(reference) => reference,
        Err(got) => return report.add(&REPEATED, Outcome::Failed(got)),
    };
    let again = suite.pay(&payment).await;
    let is_same = again.reference() == Some(&reference);
    let got = again.describe();
    let outcome =
        if is_same { Outcome::Passed(got) } else { Outcome::Failed(format!("{got}, after {reference}")) };
    report.add(&REPEATED, outcome);
    let marked = if again.is_repeat() { Outcome::Passed } else { Outcome::Warned };
    report.add(&MARKED, marked(again.describe()));
}

async fn concurrent(suite: &Arc<Suite>) -> Result<String, String> {
    let mut executed = 0;
    for round in 1..=ROUNDS {
        let payment = suite.payment(&format!("concurrent-{round}"));
        let mut requests = JoinSet::new();
        for _ in 0..suite.parallel() {
            let (suite, payment) = (Arc::clone(suite), payment.clone());
            requests.spawn(async move { suite.pay(&payment).await });
        }
        let replies = requests.join_all().await;
        let wrong = replies.iter().find(|reply| reply.reference().is_none() && !is_in_progress(reply));
        if let Some(reply) = wrong {
            return Err(format!("round {round}: {}", reply.describe()));
        }
        let references: BTreeSet<_> = replies.iter().filter_map(Reply::reference).collect();
        let shown: Vec<_> = references.iter().copied().collect();
        let [reference] = shown[..] else {
            return Err(match shown[..] {
                [] => format!("round {round}: no request succeeded"),
                _ => format!("round {round}: {} references: {}", shown.len(), shown.join(", ")),
            });
        };
        executed += replies.iter().filter(|reply| reply.reference().is_some()).count();
        let after = suite.pay_for_reference(&payment).await?;
        if after != reference {
            return Err(format!("round {round}: {reference} at once, and {after} afterwards"));
        }
        suite.is_executed(&payment, reference).await?;
    }
    let sent = ROUNDS * suite.parallel();
    Ok(format!("{ROUNDS} keys, {sent} requests, {executed} successes, one reference for each key"))
}

/// A key that another request is using: a conflict, whose outcome the rail inquires about.
fn is_in_progress(reply: &Reply) -> bool {
    reply.status == Some(409) && reply.is_unknown()
}

async fn other_amount(suite: &Suite) -> Result<String, String> {
    let payment = suite.payment("other-amount");
    let reference = suite.pay_for_reference(&payment).await?;
    let payload = suite.payload();
    // Whole numbers are amounts in every currency.
    let other = if payload.get("amount").and_then(Value::as_str) == Some("1") { "2" } else { "1" };
    let other = Payment { payload: changed(payload, &[("amount", json!(other))]), ..payment.clone() };
    let reply = suite.pay(&other).await;
    let described = reply.describe();
    suite.is_executed(&payment, &reference).await.map_err(|got| format!("{described}; {got}"))?;
    if reply.is_unknown() { Ok(described) } else { Err(described) }
}

async fn other_sequence(suite: &Suite) -> Result<String, String> {
    let payment = suite.payment("other-sequence");
    let reference = suite.pay_for_reference(&payment).await?;
    let redriven = Payment { sequence_id: payment.sequence_id + 1000, ..payment.clone() };
    let reply = suite.pay(&redriven).await;
    suite.is_executed(&payment, &reference).await?;
    if reply.reference() == Some(&reference) || reply.is_unknown() {
        Ok(reply.describe())
    } else {
        Err(reply.describe())
    }
}

async fn refused(suite: &Suite, payment: &Payment) -> Result<String, String> {
    for time in ["first", "second"] {
        let reply = suite.pay(payment).await;
        if !reply.is_refused() {
            return Err(format!("the {time} time: {}", reply.describe()));
        }
    }
    suite.is_not_executed(payment).await?;
    Ok("refused twice, and not executed".to_owned())
}
