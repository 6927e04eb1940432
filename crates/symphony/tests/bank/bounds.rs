//! Limits on requests and connections, and an orderly shutdown.

use std::{
    io::{Read as _, Write as _},
    time::{Duration, Instant},
};

use serde_json::json;

use crate::process::{Answer, Bank, payment, refused};

#[test]
fn wrong_arguments_are_refused_with_a_hint() {
    for (arguments, says) in [
        (&["--fault", "meteor=1"][..], "there are: timeout_before"),
        (&["--fault", "busy"], "NAME=VALUE"),
        (&["--fault", "busy=2"], "a probability from 0 to 1"),
        (&["--fault", "busy=0.7", "--fault", "cut_after=0.7"], "add up to more than 1"),
        (&["--faults", "all"], "none, some, many"),
        (&["--listen", "here"], "--listen"),
        (&["--max-connections", "0"], "--max-connections"),
    ] {
        let (code, output) = refused(arguments);
        assert!(code == Some(2) && output.contains(says), "{arguments:?}: {code:?} {output}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, output) = refused(&["--listen", &address]);
    assert!(code == Some(1) && output.contains(&format!("cannot listen on {address}")), "{output}");
}

#[test]
fn a_request_that_is_too_large_is_refused_and_pays_nothing() {
    let bank = Bank::start(&[]);
    let large = payment("K", &"1".repeat(400 * 1024));
    let answer = bank.request("POST", "/v1/payments", "Idempotency-Key: K\r\n", &large).everything();
    assert!(answer.is_empty() || Answer::read(&answer).status == 413, "{answer}");
    let many: String = (0..100).map(|n| format!("X-{n}: 1\r\n")).collect();
    let answer = bank.request("GET", "/v1/stats", &many, "").everything();
    assert!(answer.is_empty() || Answer::read(&answer).status == 431, "{answer}");
    let long = format!("X-Long: {}\r\n", "1".repeat(64 * 1024));
    let answer = bank.request("GET", "/v1/stats", &long, "").everything();
    assert!(answer.is_empty() || Answer::read(&answer).status == 431, "{answer}");
    let deep = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let deep = payment("K", "1").replace("\"EUR\"", &deep);
    assert_eq!(bank.request("POST", "/v1/payments", "Idempotency-Key: K\r\n", &deep).answer().status, 400);
    assert_eq!(bank.inquire(&"k".repeat(600)).status, 400);
    assert!(bank.ledger().is_empty());
}

#[test]
fn a_connection_that_sends_no_request_is_closed() {
    let bank = Bank::start(&["--head-timeout", "1"]);
    let wire = bank.send(b"GET /v1/stats HTTP/1.1\r\nHost: ba");
    let output = wire.everything();
    assert!(output.is_empty() || Answer::read(&output).status == 408, "{output}");
}

#[test]
fn one_connection_too_many_waits_for_its_turn() {
    let bank = Bank::start(&["--max-connections", "1"]);
    let stats = b"GET /v1/stats HTTP/1.1\r\nHost: bank\r\n\r\n";
    let mut first = bank.send(stats);
    let mut read_one = || {
        let (mut text, mut bytes) = (String::new(), [0; 4096]);
        while !text.ends_with('}') {
            let read = first.0.read(&mut bytes).unwrap();
            assert_ne!(read, 0, "{text}");
            text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
    };
    read_one();
    let second = bank.request("GET", "/v1/stats", "", "");
    first.0.write_all(stats).unwrap();
    let mut read_one = || {
        let mut bytes = [0; 4096];
        assert_ne!(first.0.read(&mut bytes).unwrap(), 0);
    };
    read_one();
    assert!(second.is_silent());
    drop(first);
    assert_eq!(second.answer().status, 200);
}

#[test]
fn a_bank_that_gets_sigterm_finishes_running_requests() {
    let bank = Bank::start(&["--fault", "latency=1s"]);
    bank.order(&json!({"for_key": {"K": ["ok"]}}));
    let wire = bank.send_payment("K", "1");
    bank.until("the payment has arrived", |bank| bank.get("/v1/faults").json()["for_key"] == json!({}));
    bank.terminate();
    assert_eq!(wire.answer().status, 201);
    assert_eq!(bank.ended(), (Some(0), String::new()));
}

#[test]
fn a_second_sigterm_ends_the_bank_at_once_and_nothing_more_is_executed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bank.jsonl");
    let bank = Bank::start(&["--fault", "latency=60s", "--ledger", file.to_str().unwrap()]);
    bank.order(&json!({"for_key": {"K": ["ok"]}}));
    let wire = bank.send_payment("K", "1");
    bank.until("the payment has arrived", |bank| bank.get("/v1/faults").json()["for_key"] == json!({}));
    let asked = Instant::now();
    bank.terminate();
    // It has handled the first signal once it no longer listens.
    bank.until("the bank no longer listens", |bank| !bank.listens());
    bank.terminate();
    let hurried = asked.elapsed() < Duration::from_secs(4);
    assert_eq!(wire.everything(), "");
    let (code, output) = bank.ended();
    // On a slow machine its shutdown timeout may end first.
    assert!(
        code == Some(143) && output.contains("were not finished") || code == Some(0) && !hurried,
        "{code:?} {output}"
    );
    assert!(Bank::on(&file).ledger().is_empty());
}
