//! Checks of odd keys and ids: whatever a producer writes must come back as the same key.

use std::collections::BTreeMap;

use symphony_relay::rail::Payment;

use super::report::{Check, Outcome, Report};
use super::suite::Suite;

/// The longest key that the database takes.
const LONGEST: usize = 200;

const ODD: Check = Check {
    group: "keys",
    name: "a key with …",
    tried: "a payment under this key, and its inquiry",
    expected: "executed; the inquiry finds the same reference",
    advice: "a key has 1 to 200 printable ASCII characters. In the path it is percent-encoded: route the raw path, and decode the key \
             once",
};

const DISTINCT: Check = Check {
    group: "keys",
    name: "keys that resemble each other are different payments",
    tried: "the references of the keys above, such as a/b, a%2Fb and A/B",
    expected: "a different reference for each key",
    advice: "compare keys byte for byte: do not decode them twice, trim them, cut them or change their case",
};

const ODD_IDS: Check = Check {
    group: "keys",
    name: "ids with spaces, quotes and Unicode are taken",
    tried: "a payment whose instruction_id and participant_id hold them",
    expected: "executed; the inquiry finds the same reference",
    advice: "treat instruction_id and participant_id as any text of 1 to 200 characters",
};

/// What the keys hold, and the end of the key.
const KEYS: [(&str, &str); 9] = [
    ("a slash", "a/b"),
    ("an encoded slash", "a%2Fb"),
    ("capitals", "A/B"),
    ("a query and a fragment", "a?b=c&d=e#f"),
    ("quotes and a backslash", "a\"b'c\\d"),
    ("brackets, comma and semicolon", "{a},[b];<c>"),
    ("plus, colon and at", "a+b:c@d"),
    ("dots", "a/../b"),
    ("a percent sign", "100%"),
];

pub(super) async fn run(suite: &Suite, report: &mut Report) {
    let mut keys_by_reference: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let longest = suite.payment("");
    let filler = "k".repeat(LONGEST.saturating_sub(longest.idempotency_key.len()));
    let longest = ("200 characters".to_owned(), filler);
    let odd = KEYS.map(|(what, end)| (what.to_owned(), end.to_owned()));
    for (what, end) in odd.into_iter().chain([longest]) {
        let payment = suite.payment(&end);
        let outcome = match round_trip(suite, &payment).await {
            Ok(reference) => {
                keys_by_reference.entry(reference.clone()).or_default().push(what.clone());
                Outcome::Passed(format!("executed and found, reference {reference}"))
            }
            Err(got) => Outcome::Failed(got),
        };
        report.add_named(&ODD, format!("a key with {what}"), outcome);
    }
    let shared = keys_by_reference.iter().find(|(_, keys)| keys.len() > 1);
    let outcome = match shared {
        None => Outcome::Passed(format!("{} references", keys_by_reference.len())),
        Some((reference, keys)) => {
            Outcome::Failed(format!("reference {reference} for the keys with {}", keys.join(" and ")))
        }
    };
    report.add(&DISTINCT, outcome);
    report.add(&ODD_IDS, odd_ids(suite).await.into());
}

async fn round_trip(suite: &Suite, payment: &Payment) -> Result<String, String> {
    let reference = suite.pay_for_reference(payment).await?;
    suite.is_executed(payment, &reference).await?;
    Ok(reference)
}

async fn odd_ids(suite: &Suite) -> Result<String, String> {
    let mut payment = suite.payment("odd-ids");
    payment.instruction_id.push_str(" Zürich «7»/\u{1f600}\t\"\\");
    payment.participant_id.push_str(" Łódź & Co.");
    let reference = round_trip(suite, &payment).await?;
    Ok(format!("executed and found, reference {reference}"))
}
