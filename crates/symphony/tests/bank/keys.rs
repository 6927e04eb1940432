//! Idempotency keys: replays, conflicts, and how long the bank remembers them.

use std::{collections::BTreeSet, sync::Barrier, thread};

use serde_json::json;

use crate::process::{Bank, payment};

#[test]
fn a_repeat_is_an_idempotent_replay_and_executes_nothing() {
    let bank = Bank::start(&[]);
    let first = bank.pay("K");
    assert_eq!((first.status, first.is_replay()), (201, false));
    let again = bank.pay("K");
    assert_eq!((again.status, again.is_replay()), (200, true));
    assert_eq!(first.reference(), again.reference());
    assert_eq!(bank.inquire("K").reference(), first.reference());
    let ledger = bank.ledger();
    assert_eq!(ledger.len(), 1);
    let mut line = ledger[0].clone();
    assert!(line.as_object_mut().unwrap().remove("executed_at").unwrap().as_str().unwrap().ends_with('Z'));
    assert_eq!(
        line,
        json!({
            "ordinal": 1, "key": "K", "instruction_id": "instruction of K", "participant_id": "shop",
            "sequence_id": 7, "amount": "12.50", "currency": "EUR", "reference": first.reference(),
        })
    );
}

#[test]
fn a_key_that_comes_with_another_body_is_a_conflict_and_pays_nothing() {
    let bank = Bank::start(&[]);
    assert_eq!(bank.send_payment("K", "12.50").answer().status, 201);
    let reused = bank.send_payment("K", "12.51").answer();
    assert_eq!((reused.status, reused.json()["code"].as_str()), (422, Some("KEY_REUSED")));
    assert!(!reused.is_replay());
    let other_number = payment("K", "12.50").replace("\"sequence_id\":7", "\"sequence_id\":8");
    let reused = bank.request("POST", "/v1/payments", "Idempotency-Key: K\r\n", &other_number).answer();
    assert_eq!((reused.status, reused.json()["code"].as_str()), (422, Some("KEY_REUSED")));
    // A redriven payment comes with a new sequence number in its header, and is still the same payment.
    let headers = "Idempotency-Key: K\r\nSymphony-Sequence-Id: 8\r\n";
    let redriven = bank.request("POST", "/v1/payments", headers, &payment("K", "12.50")).answer();
    assert_eq!((redriven.status, redriven.is_replay()), (200, true));
    assert_eq!(bank.paid(), ["K"]);
}

#[test]
fn of_many_concurrent_requests_with_one_key_one_executes() {
    let bank = Bank::start(&[]);
    let barrier = Barrier::new(32);
    let answers: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = (0..32)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    bank.pay("K")
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    assert_eq!(answers.iter().filter(|answer| answer.status == 200 && answer.is_replay()).count(), 31);
    let references: BTreeSet<_> = answers.iter().map(super::process::Answer::reference).collect();
    assert_eq!((references.len(), bank.paid()), (1, vec!["K".to_owned()]));
}

#[test]
fn an_inquiry_has_its_key_in_the_path_or_in_the_query() {
    let bank = Bank::start(&[]);
    let paid = bank.pay("order-4711/payout/1");
    for path in ["/v1/payments/order-4711%2Fpayout%2F1", "/v1/payments?key=order-4711%2Fpayout%2F1"] {
        let found = bank.get(path);
        assert_eq!((found.status, found.reference()), (200, paid.reference()), "{path}");
    }
    assert_eq!(bank.get("/v1/payments?key=order-4711").json()["status"], "UNKNOWN_KEY");
    assert_eq!(bank.get("/v1/payments/order-4711/payout/1").status, 404);
    assert_eq!(bank.get("/v1/payments").status, 400);
}

#[test]
fn a_refusal_is_remembered_under_its_key() {
    let bank = Bank::start(&[]);
    let refused = bank.send_payment("K", "0.00").answer();
    assert_eq!((refused.status, refused.json()["code"].as_str()), (422, Some("INVALID_AMOUNT")));
    let again = bank.send_payment("K", "0.00").answer();
    assert_eq!((again.status, again.is_replay(), &again.body), (422, true, &refused.body));
    assert_eq!(bank.inquire("K").json(), json!({"status": "REFUSED", "code": "INVALID_AMOUNT"}));
    assert_eq!(bank.send_payment("K", "1.00").answer().json()["code"], "KEY_REUSED");
    assert!(bank.ledger().is_empty());
}

#[test]
fn a_key_that_others_have_pushed_out_executes_again_and_the_ledger_shows_it_twice() {
    let bank = Bank::start(&["--fault", "forget_after=2keys"]);
    let first = bank.pay("A").reference();
    assert_eq!(bank.pay("B").status, 201);
    assert_eq!(bank.pay("A").status, 200);
    assert_eq!(bank.pay("C").status, 201);
    assert_eq!(bank.inquire("A").status, 404);
    let second = bank.pay("A");
    assert_eq!((second.status, second.is_replay()), (201, false));
    assert_ne!(second.reference(), first);
    assert_eq!(bank.inquire("A").reference(), second.reference());
    assert_eq!(bank.paid(), ["A", "B", "C", "A"]);
    assert_eq!(bank.stats()["executed_again"], 1);
}

#[test]
fn a_key_that_is_too_old_executes_again_and_the_ledger_shows_it_twice() {
    let bank = Bank::start(&["--fault", "forget_after=50ms"]);
    assert_eq!(bank.pay("A").status, 201);
    bank.until("the key is forgotten", |bank| bank.inquire("A").status == 404);
    assert_eq!(bank.pay("A").status, 201);
    assert_eq!(bank.paid(), ["A", "A"]);
}

#[test]
fn a_request_without_its_key_or_with_two_is_refused_and_pays_nothing() {
    let bank = Bank::start(&[]);
    let post = |headers: &str, body: &str| {
        let answer = bank.request("POST", "/v1/payments", headers, body).answer();
        (answer.status, answer.json()["code"].as_str().unwrap().to_owned())
    };
    let body = payment("K", "1");
    assert_eq!(post("", &body), (400, "KEY_MISSING".to_owned()));
    assert_eq!(post("Idempotency-Key: K\r\nIdempotency-Key: K\r\n", &body), (400, "KEY_MISSING".to_owned()));
    assert_eq!(post("Idempotency-Key: L\r\n", &body), (400, "KEY_MISMATCH".to_owned()));
    for wrong in ["", "{", "[]", "{}", &body.replace("\"sequence_id\":7", "\"sequence_id\":\"7\"")] {
        assert_eq!(post("Idempotency-Key: K\r\n", wrong), (400, "MALFORMED".to_owned()), "{wrong}");
    }
    assert!(bank.ledger().is_empty() && bank.inquire("K").status == 404);
}

#[test]
fn a_key_may_hold_whatever_a_url_can_carry() {
    let bank = Bank::start(&[]);
    let reference = bank.pay("a/b c%ü").reference();
    assert_eq!(bank.inquire("a%2Fb%20c%25%C3%BC").reference(), reference);
}
