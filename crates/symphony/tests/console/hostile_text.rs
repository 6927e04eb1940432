//! Control characters and bidirectional overrides in stored text: pages and terminals replace them, JSON keeps them.

use std::process::Command;

use serde_json::Value;

use crate::fixture::Fixture;
use crate::http;

/// An escape sequence of C0 and of C1, overrides and isolates of direction, marks, line separators, invisible
/// characters.
const HOSTILE: [char; 14] = [
    '\u{1b}',
    '\u{9b}',
    '\u{7f}',
    '\u{7}',
    '\u{202e}',
    '\u{202a}',
    '\u{2066}',
    '\u{2069}',
    '\u{200f}',
    '\u{61c}',
    '\u{2028}',
    '\u{feff}',
    '\u{200b}',
    '\u{e0041}',
];

fn hostile(name: &str) -> String {
    format!("{name}{}", HOSTILE.iter().map(|c| format!("{c}[2Jx")).collect::<String>())
}

#[track_caller]
fn is_clean(what: &str, text: &str) {
    for c in HOSTILE {
        assert!(!text.contains(c), "{what} shows U+{:04X}: {text:?}", u32::from(c));
    }
}

/// One failed payment whose every text is hostile, and an operation about it.
async fn plant(fixture: &Fixture) -> String {
    let rail = hostile("rail");
    fixture
        .owner
        .execute(
            "select symphony.register_payment_rail($1, '{}', $2, $3)",
            &[&rail, &hostile("actor"), &hostile("reason")],
        )
        .await
        .unwrap();
    let enqueue = "select outbox_id::text from symphony.enqueue_payment_outbox($1, $2, $3, $4, jsonb_build_object('a', $5::text))";
    let texts = [hostile("pay"), hostile("shop"), hostile("key"), rail, hostile("payload")];
    let row = fixture.owner.query_one(enqueue, &[&texts[0], &texts[1], &texts[2], &texts[3], &texts[4]]).await;
    let id: String = row.unwrap().get(0);
    fixture.claim().await;
    let fail = "select symphony.complete_outbox_attempt(p.outbox_id, p.lease_token, p.claimed_by, 'FAILED', $1, $2, 'NO_ACCOUNT', $3, 5)
                from symphony.payment_outbox_pending p";
    let fail = fixture.owner.execute(fail, &[&hostile("ref"), &hostile("code"), &hostile("message")]).await;
    fail.unwrap_or_else(|error| panic!("{error:?}"));
    id
}

#[tokio::test]
async fn no_page_shows_control_characters_or_overrides() {
    let fixture = Fixture::new().await;
    let id = plant(&fixture).await;
    let console = fixture.console(&[]).await;
    let outbox = format!("/outboxes/{id}");
    for path in [
        "/",
        "/rails",
        "/search",
        "/dead-letters",
        "/participants",
        "/operations",
        outbox.as_str(),
        &format!("{outbox}/payload"),
        "/search?q=a%E2%80%AEb%1B",
        "/search?cursor=%E2%80%AE",
    ] {
        let page = http::ask(console.address, "GET", path, &[], "").await;
        is_clean(path, &page.body);
    }
    let page = http::ask(console.address, "GET", &outbox, &[], "").await.is(200);
    assert!(page.body.contains("pay\u{fffd}[2Jx"), "a removed character is visible as U+FFFD");
    // The API keeps every character.
    let timeline =
        http::ask(console.address, "GET", &format!("/api/v1/outboxes/{id}"), &[], "").await.is(200).json();
    assert_eq!(timeline["outbox"]["instruction_id"].as_str(), Some(hostile("pay").as_str()));
    let csv = http::ask(console.address, "GET", &format!("/api/v1/audit/outboxes/{id}?format=csv"), &[], "").await;
    is_clean("the CSV export", &csv.is(200).body);
}

#[tokio::test]
async fn no_command_prints_control_characters_or_overrides_and_json_keeps_them() {
    let fixture = Fixture::new().await;
    let id = plant(&fixture).await;
    let roles = ["symphony_readonly", "symphony_auditor", "symphony_operator"];
    let url = fixture.database.url_as_login(&roles).await.unwrap();
    let print = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_symphony"))
            .args(arguments)
            .env("DATABASE_URL", &url)
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        is_clean(&format!("{arguments:?}"), &printed);
        is_clean(&format!("the refusal of {arguments:?}"), &String::from_utf8(output.stderr).unwrap());
        printed
    };
    for arguments in [
        &["inspect", id.as_str()][..],
        &["dlq", "list"],
        &["rail", "list"],
        &["status"],
        &["audit", "outbox", &id],
        &["audit", "outbox", &id, "--format", "ndjson"],
        &["rail", "pause", &hostile("nowhere"), "--actor", "a", "--reason", "b"],
    ] {
        print(arguments);
    }
    let events_of_row: Value = serde_json::from_str(&print(&["inspect", &id, "--json"])).unwrap();
    assert_eq!(events_of_row["instruction_id"].as_str(), Some(hostile("pay").as_str()));
}
