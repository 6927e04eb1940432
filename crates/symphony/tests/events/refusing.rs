//! Why a relayer with events does not start: each reason with its exit code and what to do about it.

use std::path::Path;

use symphony_outbox::schema::{Lane, script};
use symphony_proof::kit::scratch::Server;
use symphony_proof::kit::wait::BOUND;

use crate::course::orders;
use crate::program::symphony;
use crate::relayer::Orders;

const NO: i32 = 1;
const USAGE: i32 = 2;
/// A sink is not asked for anything before the relayer has begun.
const SINK: &str = "kind = 'redis'\nurl = 'redis://127.0.0.1:1'\nallow_plain = true\n";

async fn says(orders: &Orders, folder: &Path, arguments: &[&str]) -> (i32, String) {
    let program = orders.launch(folder).args(arguments).start().unwrap();
    (program.exit_code(BOUND).await.unwrap(), program.tail())
}

/// It must not start: it says all of these, and ends with this code.
async fn is_refused(orders: &Orders, folder: &Path, code: i32, words: &[&str]) {
    for arguments in [&[][..], &["--check"]] {
        let (ended, said) = says(orders, folder, arguments).await;
        assert_eq!(ended, code, "{said}");
        assert!(!said.contains("\"endpoints\""), "it had begun: {said}");
        for words in ["error: ", "hint: "].iter().chain(words) {
            assert!(said.contains(words), "{words:?} is not in: {said}");
        }
    }
}

#[tokio::test]
async fn a_relayer_with_events_says_why_it_does_not_start() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
    let whole = orders(&url, SINK);
    let (ended, said) = says(&whole, folder, &["--check"]).await;
    assert_eq!(ended, 0, "{said}");
    let with = |from: &str, to: &str| {
        assert!(whole.more.contains(from), "{from} is not in the settings");
        Orders { more: whole.more.replace(from, to), ..whole.clone() }
    };

    // The settings.
    let nowhere = with("sink = 'bus'", "sink = 'buss'");
    is_refused(&nowhere, folder, USAGE, &["there is no section [sinks.buss]"]).await;
    for source in ["''", "'  '"] {
        let nobody = with("'//shop.example'", source);
        is_refused(&nobody, folder, USAGE, &["event.source is empty", "for example: source = "]).await;
    }
    let unbalanced = with("destination = 'orders'", "destination = 'orders.{event_typ}'");
    is_refused(&unbalanced, folder, USAGE, &["{event_typ} is not known"]).await;
    let misspelt = with("allow_plain", "allow_plane");
    is_refused(&misspelt, folder, USAGE, &["allow_plane", "docs/sinks/"]).await;
    let long = with("poll = '250ms'", "poll = '1h'");
    is_refused(&long, folder, USAGE, &["event.poll"]).await;

    // The schema: another lane alone is not enough, and a lane that was changed is none.
    let other = server.empty_database().await.unwrap();
    let owner = other.connect().await.unwrap();
    owner.batch_execute(&script(&[Lane::Payment])).await.unwrap();
    let url = other.url_as_login(&["symphony_executor"]).await.unwrap();
    let missing = Orders { url, ..whole.clone() };
    is_refused(&missing, folder, NO, &["the event lane is not installed", "symphony install --lane event"]).await;
    // The hint is worth something.
    symphony(&other.url(), &["install", "--lane", "event"]).exits(0);
    let (ended, said) = says(&missing, folder, &["--check"]).await;
    assert_eq!(ended, 0, "{said}");
    let drift = "alter table m10_recovery.outbox add column next_retry_at timestamptz";
    owner.batch_execute(drift).await.unwrap();
    is_refused(&missing, folder, NO, &["next_retry_at", "symphony verify", "symphony install"]).await;
}
