//! Error texts of external systems are stored without personal data and credentials, and cut to a maximum length.
//!
//! - `examples`: texts and exactly what is kept of them, so that too much is seen as well as too little
//! - `masking`: secrets at any place in any text, in every encoding that the function claims to know
//! - `worst_case_time`: texts made to take long
//! - `corpus`: nasty texts in files, one more for each that was found
//! - `lanes`: what the lanes store
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod corpus;
mod encoding;
mod examples;
mod lanes;
mod masking;
mod secret;
mod worst_case_time;

use symphony_testkit::test_database::{Database, Server};
use tokio_postgres::Client;

async fn database() -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    (database, client)
}

async fn cleaned(client: &Client, text: &str) -> Option<String> {
    client.query_one("select symphony.clean_error_text($1)", &[&text]).await.unwrap().get(0)
}

/// What is kept of each text, and what of that when it is cleaned once more.
async fn cleaned_twice(client: &Client, texts: &[String]) -> Vec<(Option<String>, Option<String>)> {
    let clean = "select c.kept, symphony.clean_error_text(c.kept)
                 from unnest($1::text[]) with ordinality as t (given, place)
                 cross join lateral (select symphony.clean_error_text(t.given) as kept offset 0) c
                 order by t.place";
    let rows = client.query(clean, &[&texts]).await.unwrap();
    assert_eq!(rows.len(), texts.len());
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Every cleaned text is one line, not too long, without invisible characters, and unchanged by cleaning it again.
fn is_sound(kept: Option<&str>, again: Option<&str>) -> Result<(), String> {
    if again != kept {
        return Err(format!("cleaned once more it becomes {again:?}"));
    }
    let kept = kept.unwrap_or("-");
    let unseen = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    if kept.chars().any(unseen) {
        return Err("it has characters that cannot be seen".to_owned());
    }
    if kept.is_empty() || kept.trim() != kept || kept.chars().count() > 2000 {
        return Err("it is empty, too long, or has blanks at its ends".to_owned());
    }
    Ok(())
}
