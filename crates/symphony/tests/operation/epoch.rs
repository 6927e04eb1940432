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

#[tokio::test]
async fn orphaned_outcomes_are_listed_until_the_bank_s_export_was_compared_with_the_rail() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let producer = database.url_as_login(&["symphony_ingest"]).await.unwrap();
    let operator = database.url_as_login(&["symphony_operator"]).await.unwrap();
    let reader = database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let audited = |arguments: &[&str]| {
        symphony(&operator, &[arguments, &["--actor", "ana", "--reason", "a failover"]].concat())
    };
    audited(&["rail", "add", "sepa"]).exits(0);
    assert_eq!(symphony(&reader, &["recover", "orphans"]).exits(0).stdout, "no outcome is orphaned\n");
    for key in ["paid", "unpaid", "pending"] {
        let payload = r#"{"amount": "10.00", "currency": "EUR"}"#;
        let payment = ["--instruction", key, "--participant", "acme", "--key", key, "--payload", payload];
        symphony(&producer, &[&["enqueue", "--rail", "sepa"][..], &payment].concat()).exits(0);
    }
    let orphan = "select symphony.record_payment_orphan('UNKNOWN_OUTBOX', 'worker', gen_random_uuid(), gen_random_uuid(), 'DISPATCHED',
                    p_rail_reference => 'bank-1', p_idempotency_key => 'lost', p_rail_type => 'sepa')";
    let executor = database.connect_as("symphony_executor").await.unwrap();
    executor.batch_execute(orphan).await.unwrap();
    let leases = executor.query("select outbox_id::text, lease_token::text, idempotency_key from symphony.claim_outbox_batch(3, 'worker', 60)", &[]);
    for lease in leases.await.unwrap() {
        let (outbox_id, token, key): (String, String, String) = (lease.get(0), lease.get(1), lease.get(2));
        if key != "pending" {
            let complete =
                "select symphony.complete_outbox_attempt($1::text::uuid, $2::text::uuid, 'worker', 'DISPATCHED')";
            executor.execute(complete, &[&outbox_id, &token]).await.unwrap();
        }
    }

    let found = symphony(&reader, &["recover", "orphans", "--json"]).exits(0).json();
    let orphan = (&found[0]["kind"], &found[0]["idempotency_key"], &found[0]["rail_reference"]);
    assert_eq!(orphan, (&json!("UNKNOWN_OUTBOX"), &json!("lost"), &json!("bank-1")), "{found}");
    assert!(found[0]["lease_token"].is_null(), "{found}");
    let text = symphony(&reader, &["recover", "orphans"]).exits(0).stdout;
    assert!(text.contains("lost") && text.contains("bank-1"), "{text}");
    let status = symphony(&reader, &["status"]).exits(0).stdout;
    assert!(status.contains("orphaned outcomes: 1;"), "{status}");
    assert_eq!(symphony(&reader, &["status", "--json"]).exits(0).json()["open_orphans"], 1);

    let folder = tempfile::tempdir().unwrap();
    let export = folder.path().join("bank.csv");
    std::fs::write(
        &export,
        "key,reference,amount,currency\nlost,bank-1,7.00,EUR\npaid,bank-2,10.00,EUR\npending,bank-3,10.00,EUR\n",
    )
    .unwrap();
    let file = export.to_str().unwrap();
    let reconcile = ["recover", "reconcile", "--bank-export", file, "--rail", "sepa"];
    let period = ["--from", "2020-01-01T00:00:00Z", "--to", "2100-01-01T00:00:00Z", "--key-column", "key"];
    let refused = audited(&reconcile).exits(2).stderr;
    assert!(refused.contains("no column \"idempotency_key\"; its columns are: key, reference"), "{refused}");
    let refused =
        symphony(&reader, &[&reconcile[..], &period, &["--actor", "eve", "--reason", "curious"]].concat());
    refused.exits(3);
    let missing = ["recover", "reconcile", "--bank-export", "absent.csv", "--rail", "sepa"];
    assert!(audited(&missing).exits(1).stderr.contains("cannot read absent.csv"));
    let unknown = ["recover", "reconcile", "--bank-export", file, "--rail", "spea"];
    audited(&[&unknown[..], &period].concat()).exits(1);

    let found = audited(&[&reconcile[..], &period, &["--json"]].concat()).exits(1).json();
    let findings: Vec<_> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|one| (&one["finding"], &one["idempotency_key"], &one["is_orphan"]))
        .collect();
    assert_eq!(
        findings,
        [
            (&json!("DISPATCHED_NOT_IN_EXPORT"), &json!("unpaid"), &json!(false)),
            (&json!("EXECUTED_NOT_DISPATCHED"), &json!("pending"), &json!(false)),
            (&json!("EXECUTED_WITHOUT_ROW"), &json!("lost"), &json!(true)),
        ]
    );
    assert!(
        audited(&[&reconcile[..], &period].concat())
            .exits(1)
            .stdout
            .contains("3 payments of the bank, 3 differences")
    );
    assert_eq!(symphony(&reader, &["status", "--json"]).exits(0).json()["open_orphans"], 0);
    let logged = "select count(*) from symphony.payment_outbox_operations_log
                  where operation = 'RECONCILE' and rail_type = 'sepa' and actor = 'ana'";
    let logged: i64 = database.connect().await.unwrap().query_one(logged, &[]).await.unwrap().get(0);
    assert_eq!(logged, 2);
    std::fs::write(&export, "key\npaid\nunpaid\n").unwrap();
    let same = audited(&[&reconcile[..], &period].concat()).exits(0).stdout;
    assert_eq!(same, "2 payments of the bank, and no difference\n");
    database.close().await.unwrap();
}
