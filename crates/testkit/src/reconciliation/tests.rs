//! Each inconsistency is found under its name, and consistent records have no finding.

use std::collections::BTreeSet;

use symphony_db::OutboxId;
use symphony_db::payment::AttemptState;

use super::*;
use crate::test_database::Server;

fn attempt(number: i32, state: AttemptState, error: Option<&str>) -> Attempt {
    let reference = (state == AttemptState::Dispatched).then(String::new);
    Attempt { number, state, error_code: error.map(str::to_owned), reference }
}

/// The payment with this number of one participant, on an ordered rail, paid at the first attempt.
fn outbox(number: i64) -> Outbox {
    let mut paid = attempt(1, AttemptState::Dispatched, None);
    paid.reference = Some(format!("BNK-{number}"));
    Outbox {
        outbox_id: format!("00000000-0000-7000-8000-{number:012}").parse::<OutboxId>().unwrap(),
        instruction_id: format!("pay-{number}"),
        participant_id: "acme".into(),
        sequence_id: number,
        key: format!("key-{number}"),
        rail_type: "sepa".into(),
        ordered: true,
        amount: Some(format!("{number}.50")),
        currency: Some("EUR".into()),
        pending: false,
        attempts: vec![paid],
    }
}

fn execution(number: i64) -> Execution {
    Execution {
        ordinal: number.unsigned_abs(),
        key: format!("key-{number}"),
        instruction_id: format!("pay-{number}"),
        participant_id: "acme".into(),
        sequence_id: number,
        amount: format!("{number}.50"),
        currency: "EUR".into(),
        reference: format!("BNK-{number}"),
    }
}

/// Four payments on which outbox, bank and producer agree.
struct Records {
    outboxes: Outboxes,
    bank: Vec<Execution>,
    committed: BTreeSet<String>,
}

fn records() -> Records {
    Records {
        outboxes: Outboxes {
            outboxes: (1..=4).map(outbox).collect(),
            numbers: [("acme".to_owned(), 4)].into_iter().collect(),
        },
        bank: (1..=4).map(execution).collect(),
        committed: (1..=4).map(|number| format!("pay-{number}")).collect(),
    }
}

/// The findings after this change of the records.
fn found(corrupt: impl FnOnce(&mut Records)) -> Vec<Finding> {
    let mut records = records();
    corrupt(&mut records);
    compare(&records.outboxes, &records.bank, Some(&records.committed)).findings
}

fn id(number: i64) -> OutboxId {
    outbox(number).outbox_id
}

#[test]
fn consistent_records_have_no_finding() {
    let records = records();
    let report = compare(&records.outboxes, &records.bank, Some(&records.committed));
    assert!(report.holds(), "{report}");
    let counts = report.counts;
    assert_eq!((counts.outboxes, counts.dispatched, counts.executed, counts.in_order), (4, 4, 4, 4));
    assert_eq!((report.lost(), report.executed_twice()), (0, 0));
}

#[test]
fn a_payment_that_the_outbox_has_lost_is_found() {
    let lost = found(|records| {
        records.outboxes.outboxes.remove(1);
        records.bank.remove(1);
    });
    let number = Finding::NumberMissing { participant_id: "acme".into(), sequence_id: 2 };
    assert_eq!(lost, [Finding::Lost { instruction_id: "pay-2".into() }, number]);
    assert!(lost.iter().all(Finding::is_loss));
    let neither = found(|records| {
        records.outboxes.outboxes[1].attempts = vec![attempt(1, AttemptState::Retryable, Some("RAIL_RETRYABLE"))];
        records.bank.remove(1);
    });
    assert_eq!(neither, [Finding::NeitherPendingNorEnded { outbox_id: id(2) }]);
    let pending = found(|records| {
        (records.outboxes.outboxes[1].pending, records.outboxes.outboxes[1].attempts) = (true, Vec::new());
        records.bank.remove(1);
    });
    assert_eq!(pending, [Finding::StillPending { outbox_id: id(2) }]);
}

#[test]
fn a_payment_that_was_executed_twice_is_found() {
    let twice = found(|records| records.bank.push(Execution { ordinal: 5, ..execution(2) }));
    assert_eq!(twice, [Finding::ExecutedTwice { key: "key-2".into(), times: 2 }]);
    assert!(twice[0].is_double());
}

#[test]
fn a_payment_that_is_dispatched_and_was_not_executed_is_found() {
    let missing = found(|records| drop(records.bank.remove(1)));
    assert_eq!(missing, [Finding::DispatchedNotExecuted { outbox_id: id(2), key: "key-2".into() }]);
    assert!(missing[0].is_loss());
}

#[test]
fn a_payment_that_failed_and_was_executed_is_found() {
    let fail = |records: &mut Records, code| {
        records.outboxes.outboxes[1].attempts = vec![attempt(1, AttemptState::Failed, Some(code))];
    };
    let executed = found(|records| fail(records, "RAIL_REFUSED"));
    assert_eq!(executed, [Finding::ExecutedThoughFailed { outbox_id: id(2), key: "key-2".into() }]);
    // An unknown outcome is not a violation; it is listed with the bank's record.
    let mut records = records();
    fail(&mut records, "OUTCOME_UNKNOWN");
    let report = compare(&records.outboxes, &records.bank, None);
    assert!(report.holds(), "{report}");
    assert_eq!((report.counts.unknown, report.unknown[0].executed.as_deref()), (1, Some("BNK-2")));
    records.bank.remove(1);
    assert_eq!(compare(&records.outboxes, &records.bank, None).unknown[0].executed, None);
}

#[test]
fn a_payment_of_another_amount_or_to_another_is_found() {
    let what = |corrupt: fn(&mut Execution)| match &found(|records| corrupt(&mut records.bank[1]))[..] {
        [Finding::Differs { what, .. }] => *what,
        other => panic!("{other:?}"),
    };
    assert_eq!(what(|execution| execution.amount = "2.5".into()), "amount");
    assert_eq!(what(|execution| execution.currency = "USD".into()), "currency");
    assert_eq!(what(|execution| execution.participant_id = "other".into()), "participant");
    assert_eq!(what(|execution| execution.instruction_id = "other".into()), "instruction");
    assert_eq!(what(|execution| execution.reference = "other".into()), "reference");
}

#[test]
fn a_broken_order_is_found_on_ordered_rails_only() {
    let swap = |records: &mut Records| {
        (records.bank[1].ordinal, records.bank[2].ordinal) = (3, 2);
    };
    let expected =
        Finding::OutOfOrder { participant_id: "acme".into(), rail_type: "sepa".into(), first: 3, then: 2 };
    assert_eq!(found(swap), [expected]);
    let unordered = found(|records| {
        swap(records);
        records.outboxes.outboxes.iter_mut().for_each(|outbox| outbox.ordered = false);
    });
    assert_eq!(unordered, []);
}

#[test]
fn a_payment_without_an_outbox_or_without_an_order_is_found() {
    let key = "key-9".to_owned();
    assert_eq!(found(|records| records.bank.push(execution(9))), [Finding::ExecutedWithoutOutbox { key }]);
    let uncommitted = found(|records| assert!(records.committed.remove("pay-3")));
    assert_eq!(uncommitted, [Finding::NeverCommitted { outbox_id: id(3), instruction_id: "pay-3".into() }]);
}

#[test]
fn a_gap_in_the_attempts_or_a_second_terminal_attempt_is_found() {
    let gap = found(|records| records.outboxes.outboxes[0].attempts[0].number = 2);
    assert_eq!(gap, [Finding::AttemptMissing { outbox_id: id(1) }]);
    let again = found(|records| {
        let mut second = records.outboxes.outboxes[0].attempts[0].clone();
        second.number = 2;
        records.outboxes.outboxes[0].attempts.push(second);
    });
    assert_eq!(again, [Finding::EndedTwice { outbox_id: id(1) }]);
    let pending = found(|records| records.outboxes.outboxes[0].pending = true);
    assert_eq!(pending, [Finding::EndedTwice { outbox_id: id(1) }]);
}

#[test]
fn a_new_epoch_makes_a_gap_and_a_number_that_is_missing_in_it_is_found() {
    const FIRST: i64 = 1_000_000_000_001;
    let mut records = records();
    for (at, number) in [(2, FIRST), (3, FIRST + 2)] {
        records.outboxes.outboxes[at].sequence_id = number;
        records.bank[at].sequence_id = number;
    }
    records.outboxes.numbers.insert("acme".into(), FIRST + 2);
    let found = compare(&records.outboxes, &records.bank, Some(&records.committed)).findings;
    assert_eq!(found, [Finding::NumberMissing { participant_id: "acme".into(), sequence_id: FIRST + 1 }]);
}

#[test]
fn a_redrive_is_paid_once_under_the_key_of_the_first() {
    let mut records = records();
    records.outboxes.outboxes[1].attempts = vec![attempt(1, AttemptState::Failed, Some("RAIL_REFUSED"))];
    records.outboxes.outboxes.push(Outbox { outbox_id: id(5), sequence_id: 5, ..outbox(2) });
    records.outboxes.numbers.insert("acme".into(), 5);
    // The bank executed it after all the others, as number 5.
    records.bank[1] = Execution { ordinal: 5, sequence_id: 5, ..execution(2) };
    let report = compare(&records.outboxes, &records.bank, Some(&records.committed));
    assert!(report.holds(), "{report}");
    records.outboxes.outboxes[1].attempts = vec![outbox(2).attempts.remove(0)];
    let twice = compare(&records.outboxes, &records.bank, Some(&records.committed)).findings;
    assert_eq!(twice, [Finding::DispatchedTwice { key: "key-2".into() }]);
}

#[test]
fn the_listing_and_the_file_of_the_bank_give_the_same_executions() {
    let line = |number| serde_json::to_string(&execution(number)).unwrap();
    let listing = format!("{}\n{}\n", line(1), line(2));
    let file = format!(
        "{{\"symphony_bank\":1}}\n{{\"request\":{{}},\"executed\":{}}}\n{{\"request\":{{}}}}\n{{\"request\":{{}},\"executed\":{}}}\n",
        line(1),
        line(2)
    );
    let expected = vec![execution(1), execution(2)];
    assert_eq!(executions(&listing).unwrap(), expected);
    assert_eq!(executions(&file).unwrap(), expected);
    assert!(matches!(executions("{}\n"), Err(Error::Bank { line: 1, .. })));
    assert!(matches!(executions(&format!("{listing}not a line")), Err(Error::Bank { line: 3, .. })));
}

#[tokio::test]
async fn the_outbox_tables_are_read_completely() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let mut owner = database.connect().await.unwrap();
    assert_eq!(read(&mut owner).await.unwrap(), Outboxes::default());
    owner
        .batch_execute(
            "select symphony.register_payment_rail('sepa', '{\"ordered\": true}', 'ana', 'a test');
             select symphony.enqueue_payment_outbox('pay-1', 'acme', 'key-1', 'sepa', '{\"amount\": \"1.50\", \"currency\": \"EUR\"}');
             select symphony.enqueue_payment_outbox('pay-2', 'acme', 'key-2', 'sepa', '{\"amount\": \"2.50\", \"currency\": \"EUR\"}');
             select c.outbox_id, symphony.complete_outbox_attempt(c.outbox_id, c.lease_token, 'w', 'DISPATCHED', p_rail_reference => 'BNK-1')
             from symphony.claim_outbox_batch(1, 'w', 60) c;",
        )
        .await
        .unwrap();
    let outboxes = read(&mut owner).await.unwrap();
    assert_eq!(outboxes.numbers["acme"], 2);
    let [first, second] = &outboxes.outboxes[..] else { panic!("{outboxes:?}") };
    assert_eq!((first, first.pending), (&Outbox { outbox_id: first.outbox_id, ..outbox(1) }, false));
    let pending = Outbox { outbox_id: second.outbox_id, pending: true, attempts: Vec::new(), ..outbox(2) };
    assert_eq!(second, &pending);
    let findings = compare(&outboxes, &[execution(1)], None).findings;
    assert_eq!(findings, [Finding::StillPending { outbox_id: second.outbox_id }]);
    database.close().await.unwrap();
}
