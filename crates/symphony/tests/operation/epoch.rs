//! `symphony recover`: shows epochs, opens one and releases the rails that it held.

use serde_json::json;
use symphony_testkit::test_database::Server;

use crate::program::symphony;

#[tokio::test]
async fn an_epoch_that_is_opened_by_hand_holds_rails_until_they_are_released() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let producer = database.url_as_login(&["symphony_ingest"]).await.unwrap();
    let operator = database.url_as_login(&["symphony_operator"]).await.unwrap();
    let reader = database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let audited = |arguments: &[&str]| {
        symphony(&operator, &[arguments, &["--actor", "ana", "--reason", "restored the files of 2 May"]].concat())
    };
    audited(&["rail", "add", "sepa", "--on-epoch-change", "HOLD"]).exits(0);
    audited(&["rail", "add", "wire"]).exits(0);
    let payment = ["--instruction", "pay-1", "--participant", "acme", "--key", "k1", "--payload", "{}"];
    symphony(&producer, &[&["enqueue", "--rail", "sepa"][..], &payment].concat()).exits(0);
    let shown = symphony(&reader, &["recover", "show", "--json"]).exits(0).json();
    assert_eq!((&shown["epochs"][0]["counter"], &shown["held_rails"]), (&json!(1), &json!([])));
    assert!(shown["epochs"][0]["system_identifier"].is_string(), "{shown}");
    audited(&["recover", "release", "sepa"]).exits(3);

    let opened = audited(&["recover", "open", "--json"]).exits(0).json();
    assert_eq!((&opened["counter"], &opened["reason"]), (&json!(2), &json!("restored the files of 2 May")));
    let status = symphony(&reader, &["status", "--json"]).exits(0).json();
    let found = (
        &status["epoch"]["counter"],
        &status["rails"][0]["held_since_epoch"],
        &status["rails"][1]["held_since_epoch"],
    );
    assert_eq!(found, (&json!(2), &json!(2), &json!(null)), "{status}");
    let text = symphony(&reader, &["status"]).exits(0).stdout;
    assert!(text.contains("epoch 2, opened ") && text.contains("held since a new epoch: sepa;"), "{text}");
    assert!(symphony(&reader, &["inspect", "pay-1"]).exits(0).stdout.contains("now: HELD"));
    let shown = symphony(&reader, &["recover", "show"]).exits(0).stdout;
    assert!(shown.contains("rail sepa is held since epoch 2"), "{shown}");
    symphony(&reader, &["recover", "open", "--actor", "eve", "--reason", "curious"]).exits(3);

    let released = audited(&["recover", "release", "--json"]).exits(0).json();
    assert_eq!((&released[0]["rail_type"], &released[0]["held_since_epoch"]), (&json!("sepa"), &json!(null)));
    assert!(symphony(&reader, &["inspect", "pay-1"]).exits(0).stdout.contains("now: DUE"));
    assert_eq!(audited(&["recover", "release"]).exits(0).stdout, "no rail is held\n");
    let logged = "select count(*) from symphony.payment_outbox_operations_log
                  where operation in ('OPEN_EPOCH', 'RECOVER_EPOCH') and actor = 'ana'";
    let logged: i64 = database.connect().await.unwrap().query_one(logged, &[]).await.unwrap().get(0);
    assert_eq!(logged, 2);
    database.close().await.unwrap();
}
