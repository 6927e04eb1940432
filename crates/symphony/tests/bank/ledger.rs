//! The ledger file: what survives a crash, and which files the bank refuses.

use std::{collections::BTreeMap, fs, io::Write as _, sync::Mutex, thread};

use serde_json::json;

use crate::process::{Answer, Bank, refused};

#[test]
fn a_killed_bank_remembers_every_payment_that_it_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bank.jsonl");
    let bank = Bank::on(&file);
    let confirmed = Mutex::new(BTreeMap::new());
    // Eight clients pay without a pause until the bank is gone.
    thread::scope(|scope| {
        for client in 0..8 {
            let (bank, confirmed) = (&bank, &confirmed);
            scope.spawn(move || {
                for n in 0.. {
                    let key = format!("{client}-{n}");
                    let Some(text) = bank.try_pay(&key) else { return };
                    if !text.contains("\r\n\r\n{") || !text.ends_with('}') {
                        return;
                    }
                    confirmed.lock().unwrap().insert(key, Answer::read(&text).reference());
                }
            });
        }
        bank.until("a hundred payments are confirmed", |_| confirmed.lock().unwrap().len() >= 100);
        bank.kill();
    });
    let confirmed = confirmed.into_inner().unwrap();

    let bank = Bank::on(&file);
    let ledger = bank.ledger();
    let paid: BTreeMap<_, _> =
        ledger.iter().map(|line| (line["key"].as_str().unwrap(), line["reference"].as_str().unwrap())).collect();
    assert_eq!(paid.len(), ledger.len(), "a key stands in the ledger twice");
    for (key, reference) in &confirmed {
        assert_eq!(paid.get(key.as_str()), Some(&reference.as_str()), "{key}");
    }
    let ordinals: Vec<_> = ledger.iter().map(|line| line["ordinal"].as_u64().unwrap()).collect();
    assert_eq!(ordinals, (1..=ledger.len() as u64).collect::<Vec<_>>());
    let (key, reference) = confirmed.first_key_value().unwrap();
    let again = bank.send_payment(key, "1").answer();
    assert_eq!((again.status, again.is_replay(), &again.reference()), (200, true, reference));
    assert_eq!(bank.ledger().len(), ledger.len());
}

#[test]
fn a_restart_continues_with_the_same_keys_counts_and_ordinals() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bank.jsonl");
    let bank = Bank::on(&file);
    let first = bank.pay("A").reference();
    assert_eq!(bank.send_payment("B", "0").answer().status, 422);
    assert_eq!(bank.inquire("C").status, 404);
    let (ledger, requests, stats) = (bank.ledger(), bank.requests(), bank.stats());
    bank.terminate();
    assert_eq!(bank.ended(), (Some(0), String::new()));

    let bank = Bank::on(&file);
    assert_eq!((bank.ledger(), bank.requests(), bank.stats()), (ledger, requests, stats));
    assert_eq!(bank.inquire("A").reference(), first);
    assert_eq!(bank.send_payment("A", "13").answer().json()["code"], "KEY_REUSED");
    assert_eq!(
        bank.send_payment("B", "0").answer().json(),
        json!({"status": "REFUSED", "code": "INVALID_AMOUNT"})
    );
    assert_ne!(bank.pay("D").reference(), first);
    let last = bank.requests().pop().unwrap();
    assert_eq!((&last["ordinal"], &last["key_ordinal"]), (&json!(7), &json!(1)));
    let second_of_a = bank.requests().into_iter().filter(|line| line["key"] == "A" && line["kind"] == "payment");
    assert_eq!(second_of_a.map(|line| line["key_ordinal"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn an_incomplete_last_line_is_cut_off_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bank.jsonl");
    let bank = Bank::on(&file);
    let reference = bank.pay("A").reference();
    assert_eq!(bank.pay("B").status, 201);
    bank.kill();
    let whole = fs::read(&file).unwrap();
    // As if the power had failed during the second payment, at several positions.
    let second = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for end in [second + 1, second + 40, whole.len() - 1] {
        fs::write(&file, &whole[..end]).unwrap();
        let bank = Bank::on(&file);
        assert_eq!(bank.inquire("A").reference(), reference);
        assert_eq!((bank.inquire("B").status, bank.pay("B").status), (404, 201));
        assert_eq!(bank.paid(), ["A", "B"]);
        bank.terminate();
        let (code, output) = bank.ended();
        assert_eq!(code, Some(0));
        assert!(output.contains(&format!("removed {} bytes", end - second)), "{output}");
    }
    // The header can be the incomplete line.
    fs::write(&file, b"{\"symphony").unwrap();
    let bank = Bank::on(&file);
    assert_eq!(bank.pay("A").status, 201);
    bank.kill();
    assert_eq!(Bank::on(&file).paid(), ["A"]);
}

#[test]
fn a_foreign_file_is_refused_and_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger");
    let path = file.to_str().unwrap();
    let bank = Bank::on(&file);
    assert_eq!(bank.pay("A").status, 201);
    let (code, output) = refused(&["--ledger", path]);
    assert!(code == Some(1) && output.contains("in use by a running bank"), "{output}");
    bank.kill();
    let mut ours = fs::read(&file).unwrap();
    let last = ours.len() - 2;
    ours[last] = b'!';
    for (content, says) in [
        (&b"my diary, without an end"[..], "is not the ledger of a bank"),
        (b"my diary\n", "is not the ledger of a bank"),
        (b"\n", "is not the ledger of a bank"),
        (b"{\"symphony_bank\":2}\n", "is not the ledger of a bank"),
        (&ours, "line 2 of"),
    ] {
        fs::write(&file, content).unwrap();
        let (code, output) = refused(&["--ledger", path]);
        assert!(code == Some(1) && output.contains(says) && output.contains("hint: "), "{output}");
        assert_eq!(fs::read(&file).unwrap(), content);
    }
    for nowhere in [folder.path().to_str().unwrap(), &format!("{path}/below"), "/dev/null"] {
        let (code, output) = refused(&["--ledger", nowhere]);
        assert!(code == Some(1) && output.contains(nowhere), "{output}");
    }
}

#[test]
fn a_bank_that_cannot_write_its_ledger_sends_no_response_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bank.jsonl");
    // The shell limits the file size to two blocks and ignores the signal, so that writing fails.
    let child = std::process::Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 2; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_symphony"),
            "bank",
            "--ledger",
        ])
        .arg(&file)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let bank = Bank::of(child);
    let mut confirmed = Vec::new();
    for n in 0.. {
        let key = format!("K{n}");
        match bank.try_pay(&key) {
            Some(text) if text.ends_with('}') => confirmed.push(key),
            _ => break,
        }
    }
    let (code, output) = bank.ended();
    assert!(code == Some(1) && output.contains("cannot write the bank"), "{code:?} {output}");
    assert!(!confirmed.is_empty());
    let bank = Bank::on(&file);
    assert_eq!(bank.paid()[..confirmed.len()], confirmed);
}

#[test]
fn a_long_ledger_is_listed_completely() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bank.jsonl");
    let bank = Bank::on(&file);
    assert_eq!(bank.pay("K").status, 201);
    bank.kill();
    let text = fs::read_to_string(&file).unwrap();
    let line = text.lines().last().unwrap();
    let mut out = fs::File::options().append(true).open(&file).unwrap();
    for n in 2..=5000 {
        let next =
            line.replace("\"ordinal\":1,", &format!("\"ordinal\":{n},")).replace("\"K\"", &format!("\"K{n}\""));
        writeln!(out, "{next}").unwrap();
    }
    let bank = Bank::on(&file);
    let ledger = bank.ledger();
    assert_eq!((ledger.len(), &ledger[4999]["key"]), (5000, &json!("K5000")));
    assert_eq!((bank.requests().len(), &bank.stats()["executed"]), (5000, &json!(5000)));
}
