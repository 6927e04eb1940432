//! Each fault: what arrives, what the ledger shows, and the response to a repeat of the key.

use std::{collections::BTreeMap, thread, time::Instant};

use serde_json::{Value, json};

use crate::process::{Answer, Bank};

/// What arrives at the client.
#[derive(Debug, PartialEq, Eq)]
enum Received {
    /// The connection is closed without a byte.
    Nothing,
    /// A head that announces more than arrived.
    Half,
    /// A complete response with this status and code.
    Response(u16, &'static str),
}

/// Fault, what arrives, whether it was executed, and the status of a repeat without a fault.
const FAULTS: &[(&str, Received, bool, u16)] = &[
    ("ok", Received::Response(201, ""), true, 200),
    ("cut_before", Received::Nothing, false, 201),
    ("cut_after", Received::Nothing, true, 200),
    ("half_answer", Received::Half, true, 200),
    ("error_500_before", Received::Response(500, "INTERNAL_ERROR"), false, 201),
    ("error_500_after", Received::Response(500, "INTERNAL_ERROR"), true, 200),
    ("refuse", Received::Response(422, "REFUSED_BY_BANK"), false, 422),
    ("busy", Received::Response(503, "BUSY"), false, 201),
    ("rate_limit", Received::Response(429, "RATE_LIMITED"), false, 201),
];

fn check(bank: &Bank, key: &str, fault: &(&str, Received, bool, u16)) {
    let (name, received, executed, again) = fault;
    let before = bank.ledger().len();
    let text = bank.send_payment(key, "12.50").everything();
    match received {
        Received::Nothing => assert_eq!(text, "", "{name}"),
        Received::Half => {
            let half = Answer::read(&text);
            let promised: usize = half.headers["content-length"].parse().unwrap();
            assert!(half.status == 201 && !half.body.is_empty() && half.body.len() < promised, "{name}: {text}");
        }
        Received::Response(status, code) => {
            let output = Answer::read(&text);
            assert_eq!(output.status, *status, "{name}: {text}");
            assert_eq!(output.json()["code"].as_str().unwrap_or(""), *code, "{name}: {text}");
            assert_eq!(output.headers.contains_key("retry-after"), matches!(status, 503 | 429), "{name}: {text}");
        }
    }
    assert_eq!(bank.ledger().len(), before + usize::from(*executed), "{name}");
    let last = bank.requests().pop().unwrap();
    assert_eq!((&last["fault"], &last["key"]), (&json!(name), &json!(key)), "{name}");

    // An inquiry returns its status, and a repeat without a fault leads to one execution or a refusal.
    bank.order(&json!({"preset": "none"}));
    let inquiry = bank.inquire(key);
    match again {
        200 => assert!(inquiry.status == 200 && inquiry.json()["status"] == "EXECUTED", "{name}: {inquiry:?}"),
        422 => assert!(inquiry.status == 200 && inquiry.json()["status"] == "REFUSED", "{name}: {inquiry:?}"),
        _ => assert!(inquiry.status == 404 && inquiry.json()["status"] == "UNKNOWN_KEY", "{name}: {inquiry:?}"),
    }
    let repeat = bank.pay(key);
    assert_eq!((repeat.status, repeat.is_replay()), (*again, *again != 201), "{name}: {repeat:?}");
    let lines = bank.paid().iter().filter(|paid| *paid == key).count();
    assert_eq!(lines, usize::from(*again != 422), "{name}");
}

#[test]
fn every_fault_for_a_key_does_what_its_name_says() {
    let bank = Bank::start(&[]);
    for fault in FAULTS {
        let key = format!("for-key-{}", fault.0);
        bank.order(&json!({"for_key": {key.as_str(): [fault.0]}}));
        check(&bank, &key, fault);
    }
}

#[test]
fn every_fault_that_comes_by_chance_does_what_its_name_says() {
    let bank = Bank::start(&[]);
    for fault in FAULTS.iter().filter(|fault| fault.0 != "ok") {
        bank.order(&json!({fault.0: if fault.0 == "rate_limit" { "0" } else { "1" }}));
        check(&bank, &format!("by-chance-{}", fault.0), fault);
    }
}

#[test]
fn a_fault_can_be_set_on_the_command_line() {
    let bank = Bank::start(&["--fault", "refuse=1", "--fault", "refuse_code=NO_FUNDS"]);
    let refused = bank.pay("K");
    assert_eq!((refused.status, refused.json()), (422, json!({"status": "REFUSED", "code": "NO_FUNDS"})));
    let busy = Bank::start(&["--fault", "busy=1", "--fault", "retry_after=17s"]).pay("K");
    assert_eq!((busy.status, busy.headers["retry-after"].as_str()), (503, "17"));
}

#[test]
fn a_timeout_is_never_answered_and_the_ledger_knows_whether_it_was_paid() {
    let bank = Bank::start(&[]);
    bank.order(&json!({"for_key": {"before": ["timeout_before"], "after": ["timeout_after"]}}));
    let held = [bank.send_payment("before", "1"), bank.send_payment("after", "1")];
    bank.until("both requests are handled", |bank| bank.requests().len() == 2);
    assert_eq!(bank.paid(), ["after"]);
    assert_eq!(bank.inquire("before").status, 404);
    assert_eq!(bank.send_payment("after", "1").answer().status, 200);
    assert!(held.iter().all(super::process::Wire::is_silent));
    // Not a byte arrives until the bank ends.
    bank.terminate();
    for wire in held {
        assert_eq!(wire.everything(), "");
    }
    assert_eq!(bank.ended().0, Some(0));
}

#[test]
fn the_faults_of_a_key_are_used_up_and_then_come_by_chance() {
    let bank = Bank::start(&["--fault", "busy=1"]);
    bank.order(&json!({"for_key": {"K": ["cut_before", "inquiry_down", "error_500_before", "ok", "inquiry_ok"]}}));
    assert_eq!(bank.send_payment("K", "1").everything(), "");
    assert_eq!(bank.send_payment("K", "1").answer().status, 500);
    assert_eq!(bank.inquire("K").status, 503);
    assert_eq!(bank.inquire("K").status, 404);
    assert_eq!(bank.send_payment("K", "1").answer().status, 201);
    assert_eq!(bank.send_payment("K", "1").answer().status, 503);
    assert_eq!(bank.pay("another").status, 503);
    assert_eq!(bank.get("/v1/faults").json()["for_key"], json!({}));
}

#[test]
fn inquiries_are_counted_and_can_be_down_while_payments_go_on() {
    let bank = Bank::start(&["--fault", "inquiry_down=1"]);
    assert_eq!(bank.pay("K").status, 201);
    let down = bank.inquire("K");
    assert_eq!((down.status, down.json()["code"].as_str()), (503, Some("INQUIRY_DOWN")));
    bank.order(&json!({"inquiry_down": "off"}));
    assert_eq!(bank.inquire("K").json()["status"], "EXECUTED");
    let stats = bank.stats();
    assert_eq!((&stats["payments"], &stats["inquiries"], &stats["executed"]), (&json!(1), &json!(2), &json!(1)));
    assert_eq!(stats["faults"], json!({"ok": 1, "inquiry_down": 1, "inquiry_ok": 1}));
}

#[test]
fn a_response_takes_as_long_as_the_latency_says() {
    let bank = Bank::start(&["--fault", "latency=300ms"]);
    let start = Instant::now();
    assert_eq!(bank.pay("K").status, 201);
    assert!(start.elapsed().as_millis() >= 300, "{:?}", start.elapsed());
}

#[test]
fn a_payment_is_executed_although_its_client_has_disconnected() {
    let bank = Bank::start(&["--fault", "latency=500ms"]);
    bank.order(&json!({"for_key": {"K": ["ok"]}}));
    let wire = bank.send_payment("K", "1");
    // It has arrived once the list is used up; now its delay runs.
    bank.until("the payment has arrived", |bank| bank.get("/v1/faults").json()["for_key"] == json!({}));
    drop(wire);
    bank.until("it is executed", |bank| bank.paid() == ["K"]);
}

#[test]
fn payments_above_the_rate_limit_are_refused_and_executed_later() {
    let bank = Bank::start(&["--fault", "rate_limit=2"]);
    // However slow the machine is: sooner or later three come within one second.
    let mut statuses = Vec::new();
    while !statuses.contains(&429) {
        assert!(statuses.len() < 1000, "no payment is ever refused");
        statuses.push(bank.pay(&format!("K{}", statuses.len())).status);
    }
    let (last, before) = statuses.split_last().unwrap();
    assert!(*last == 429 && before.len() >= 2 && before.iter().all(|status| *status == 201), "{statuses:?}");
    let key = format!("K{}", before.len());
    assert!(!bank.paid().contains(&key) && bank.inquire(&key).status == 404);
    bank.order(&json!({"rate_limit": "off"}));
    assert_eq!(bank.pay(&key).status, 201);
}

/// The fault of each request, by key and ordinal of the key.
fn faults_of_requests(bank: &Bank) -> BTreeMap<(String, u64), Value> {
    let name = |line: &Value| (line["key"].as_str().unwrap().to_owned(), line["key_ordinal"].as_u64().unwrap());
    bank.requests().into_iter().map(|line| (name(&line), line["fault"].clone())).collect()
}

#[test]
fn the_same_seed_gives_the_same_faults_however_requests_race() {
    let arguments = |seed| {
        let faults = ["cut_before=0.2", "cut_after=0.2", "error_500_after=0.2", "refuse=0.1"];
        let faults = faults.into_iter().flat_map(|fault| ["--fault", fault]);
        faults.chain(["--seed", seed]).collect::<Vec<_>>()
    };
    let run = |bank: &Bank, keys: &[usize]| {
        for key in keys.iter().flat_map(|key| [key; 3]) {
            let _ = bank.send_payment(&format!("K{key}"), "1").everything();
        }
    };
    let one = Bank::start(&arguments("7"));
    run(&one, &(0..20).collect::<Vec<_>>());
    let two = Bank::start(&arguments("7"));
    thread::scope(|scope| {
        for part in [[19, 3, 8, 1, 0], [2, 18, 4, 17, 5], [16, 6, 15, 7, 14], [9, 13, 10, 12, 11]] {
            let (run, two) = (&run, &two);
            scope.spawn(move || run(two, &part));
        }
    });
    assert_eq!(faults_of_requests(&one), faults_of_requests(&two));
    assert_eq!(faults_of_requests(&one).len(), 60);
    let other = Bank::start(&arguments("8"));
    run(&other, &(0..20).collect::<Vec<_>>());
    assert_ne!(faults_of_requests(&one), faults_of_requests(&other));
}

#[test]
fn an_invalid_fault_change_is_refused_and_changes_nothing() {
    let bank = Bank::start(&["--faults", "some"]);
    let before = bank.get("/v1/faults").json();
    for wrong in
        [r#"{"meteor":"1"}"#, r#"{"busy":"2"}"#, r#"{"busy":"0.5","cut_after":"0.6"}"#, "[", "{\"for_key\":1}"]
    {
        let answer = bank.request("PUT", "/v1/faults", "", wrong).answer();
        assert_eq!(answer.status, 400, "{wrong}: {answer:?}");
        assert_eq!(bank.get("/v1/faults").json(), before, "{wrong}");
    }
}
