//! Why a relayer does not start: each reason with its exit code and what to do about it.

use symphony_proof::kit::scratch::Server;
use symphony_proof::kit::wait::BOUND;

use crate::relayer::Orders;
use crate::yard::{RAIL, Yard};

const NO: i32 = 1;
const USAGE: i32 = 2;
const DATABASE: i32 = 3;

/// A relayer that must not start: it says all of these, and ends with this code.
async fn is_refused(yard: &Yard, orders: &Orders, code: i32, words: &[&str]) {
    for arguments in [&[][..], &["--check"]] {
        let program = orders.launch(yard.folder.path()).args(arguments).start().unwrap();
        let ended = program.exit_code(BOUND).await.unwrap();
        let said = program.tail();
        assert_eq!(ended, code, "{said}");
        assert!(said.contains("error: "), "{said}");
        assert!(!said.contains("\"endpoints\""), "it had begun: {said}");
        for words in words {
            assert!(said.contains(words), "{words:?} is not in: {said}");
        }
    }
}

#[tokio::test]
async fn a_relayer_says_why_it_does_not_start() {
    let yard = Yard::open().await;
    let orders = yard.orders();
    let checked = orders.launch(yard.folder.path()).args(["--check"]).start().unwrap();
    assert_eq!(checked.exit_code(BOUND).await.unwrap(), 0, "{}", checked.tail());

    let with = |change: &dyn Fn(&mut Orders)| {
        let mut orders = orders.clone();
        change(&mut orders);
        orders
    };
    // The settings.
    let slots = orders.clone().payment("slots", "0");
    is_refused(&yard, &slots, USAGE, &["payment.slots is 0, and must be 1 to 1024", "hint: "]).await;
    let misspelt = orders.clone().payment("slot", "1");
    is_refused(&yard, &misspelt, USAGE, &["there is no setting payment.slot", "--print-example"]).await;
    let long = orders.clone().payment("call_timeout", "'30s'");
    is_refused(&yard, &long, USAGE, &["call_timeout is 30s"]).await;
    let fraction = orders.clone().payment("lease", "'4500ms'");
    is_refused(&yard, &fraction, USAGE, &["lease", "not in whole seconds"]).await;
    let nothing = with(&|orders| orders.rails.clear());
    is_refused(&yard, &nothing, USAGE, &["nothing to serve", "add [rails.NAME]"]).await;
    let misspelt = orders.clone().of_rails("tiemout = '1s'");
    is_refused(&yard, &misspelt, USAGE, &["tiemout", "docs/sinks/"]).await;
    let nowhere = with(&|orders| orders.url = "postgres://nobody@127.0.0.1:1/nothing".to_owned());
    is_refused(&yard, &nowhere, DATABASE, &["cannot connect to 127.0.0.1:1"]).await;
    let no_url = with(&|orders| orders.url = String::new());
    is_refused(&yard, &no_url, USAGE, &["hint: "]).await;

    // The rails.
    let unregistered = with(&|orders| {
        let section = orders.rails[RAIL].clone();
        orders.rails.insert("sepia".to_owned(), section);
    });
    is_refused(&yard, &unregistered, NO, &["not registered: sepia", "symphony rail add"]).await;
    yard.rail("forgotten", &serde_json::json!({})).await;
    // A start goes on with a warning: see unserved_rails.rs.
    let checked = orders.launch(yard.folder.path()).args(["--check"]).start().unwrap();
    assert_eq!(checked.exit_code(BOUND).await.unwrap(), NO, "{}", checked.tail());
    for words in ["no section in the settings", "forgotten", "unserved_rails", "symphony rail retire"] {
        assert!(checked.tail().contains(words), "{words:?} is not in: {}", checked.tail());
    }
    let allowed = orders.clone().payment("unserved_rails", "'allow'");
    for (arguments, said) in
        [(&["--check"][..], "everything is in order"), (&["--check", "--json"], "\"in_order\": true")]
    {
        let checked = allowed.launch(yard.folder.path()).args(arguments).start().unwrap();
        checked.wait_for_line(|line| line.contains(said), BOUND).await.unwrap();
        assert_eq!(checked.exit_code(BOUND).await.unwrap(), 0, "{}", checked.tail());
    }

    let retire = "select symphony.retire_payment_rail('forgotten', 'test', 'mistyped')";
    yard.owner().await.batch_execute(retire).await.unwrap();
    let checked = orders.launch(yard.folder.path()).args(["--check"]).start().unwrap();
    assert_eq!(checked.exit_code(BOUND).await.unwrap(), 0, "{}", checked.tail());

    // The login.
    let url = yard.database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let short = with(&|orders| orders.url = url.clone());
    is_refused(&yard, &short, NO, &["lacks a role: symphony_executor", "let a DBA run: grant"]).await;
    let url = yard.database.url_as_login(&[]).await.unwrap();
    let nobody = with(&|orders| orders.url = url.clone());
    is_refused(&yard, &nobody, NO, &["lacks a role: symphony_executor", "let a DBA run: grant"]).await;

    // The schema.
    let drift = "alter table symphony.payment_outbox_pending add column surprise int";
    yard.owner().await.batch_execute(drift).await.unwrap();
    is_refused(&yard, &orders, NO, &["surprise", "symphony verify", "symphony install"]).await;
    let empty = Server::from_env().await.unwrap().empty_database().await.unwrap();
    let url = empty.url();
    let missing = with(&|orders| orders.url = url.clone());
    is_refused(&yard, &missing, NO, &["not installed", "symphony install"]).await;
    empty.close().await.unwrap();
}
