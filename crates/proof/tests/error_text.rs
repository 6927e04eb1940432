//! What is kept of errors that others wrote: nothing that names a person or opens a door, and never much.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use std::time::{Duration, Instant};

use symphony_proof::kit::scratch::{Database, Server};
use tokio_postgres::Client;

async fn stage() -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    (database, client)
}

async fn cleaned(client: &Client, text: &str) -> Option<String> {
    client.query_one("select symphony.clean_error_text($1)", &[&text]).await.unwrap().get(0)
}

#[tokio::test]
async fn what_names_a_person_or_opens_a_door_is_taken_away() {
    let (_database, client) = stage().await;
    for (given, kept) in [
        ("to bob.smith+x@example.co.uk failed", "to [e-mail] failed"),
        ("<ann@xn--mnchen-3ya.de>: unknown, jürgen@müller.de too", "<[e-mail]>: unknown, [e-mail] too"),
        ("mailto:ann@example.org", "mailto:[e-mail]"),
        ("postgres://me:s3cr@et@db.host:5432/x failed", "postgres://[credentials]@db.host:5432/x failed"),
        ("amqps://user:a/b?c@broker", "amqps://[credentials]@broker"),
        ("Authorization: Bearer eyJhbGciOi.abc.def-_=, 401", "Authorization: Bearer [token], 401"),
        ("bearer  abc123", "bearer [token]"),
        ("Authorization: Basic dXNlcjpwYXNzd29yZA==", "Authorization: Basic [token]"),
        ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sig", "got [token]"),
        ("password=hunter2 user=app", "password=[secret] user=app"),
        (r#"{"password": "a b c", "n": 1}"#, r#"{"password": [secret], "n": 1}"#),
        ("?api_key=abc&x=1", "?api_key=[secret]&x=1"),
        ("card 4111 1111 1111 1111 declined", "card [number] declined"),
        ("4111111111111111", "[number]"),
        ("4111-1111-1111-1111.", "[number]."),
        ("371449635398431 (amex)", "[number] (amex)"),
        ("DE89 3704 0044 0532 0130 00 was refused", "[iban] was refused"),
        ("DE89370400440532013000, gb29nwbk60161331926819", "[iban], [iban]"),
        ("NO93 8601 1117 947 no", "[iban] no"),
        ("one\ntwo\tthree\u{7}\u{1b}[31m", "one two three [31m"),
        ("right\u{202e}left\u{85}next\u{2028}end", "right left next end"),
    ] {
        assert_eq!(cleaned(&client, given).await.as_deref(), Some(kept), "{given}");
    }
}

#[tokio::test]
async fn what_a_person_needs_to_find_the_fault_stays() {
    let (_database, client) = stage().await;
    for plain in [
        "timeout after 30000 ms at 2026-11-15 23:46:38.123456",
        "broker 10.0.0.1:9092 is down (SQLSTATE 57014)",
        "topic orders, partition 12, offset 123456789012",
        "event 4711 of order order-1: HTTP 503 Service Unavailable",
        "Überlauf: größer als 1048576 Bytes – siehe Handbuch §4",
    ] {
        assert_eq!(cleaned(&client, plain).await.as_deref(), Some(plain));
    }
}

#[tokio::test]
async fn nothing_is_left_of_nothing() {
    let (_database, client) = stage().await;
    for nothing in ["", "  ", "\n\t", "\u{7}"] {
        assert_eq!(cleaned(&client, nothing).await, None);
    }
    let null = client.query_one("select symphony.clean_error_text(null)", &[]).await.unwrap();
    assert_eq!(null.get::<_, Option<String>>(0), None);
}

#[tokio::test]
async fn the_longest_error_is_cut_and_no_secret_is_cut_through() {
    let (_database, client) = stage().await;
    let kept = cleaned(&client, &"ab ".repeat(100_000)).await.unwrap();
    assert_eq!(kept.chars().count(), 2000);
    assert_eq!(cleaned(&client, &"ä".repeat(5_000)).await.as_deref(), Some("[cut]"));
    // Cleaning makes room for what stands at the cut: that goes as a whole, wherever the cut falls.
    for shift in 0..30 {
        let text = format!("{}{} 4111 1111 1111 1111 ann@example.org", "a@b.de ".repeat(566), "x".repeat(shift));
        let kept = cleaned(&client, &text).await.unwrap();
        assert!(!kept.contains("4111") && !kept.contains("ann"), "{kept}");
    }
}

#[tokio::test]
async fn no_text_takes_long() {
    let (_database, client) = stage().await;
    for piece in
        ["a", "a@", "1 ", "1-", "AB12 ", "aa11bbbbbbbbb ", "://", "bearer ", "eyJa", "password", "basic aaaaaaa "]
    {
        let began = Instant::now();
        cleaned(&client, &piece.repeat(200_000)).await;
        // Some milliseconds are usual; what grows with the length or its square would take minutes.
        assert!(began.elapsed() < Duration::from_secs(20), "{piece}: {:?}", began.elapsed());
    }
}
