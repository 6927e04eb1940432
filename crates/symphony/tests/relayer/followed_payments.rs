//! A service follows its payments through NATS: the example `follow_payments` of the client crate, against the bank's faults.

use serde_json::json;
use symphony_testkit::brokers::{Broker, BrokerAuth, Kind, USER};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio_postgres::{Client, NoTls};

use crate::harness::{Harness, RAIL};

#[path = "../../../client/examples/follow_payments.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program, whose main function is not called here")]
mod follow_payments;

const PASSWORD: &str = "open-sesame-7";
const SUBJECT: &str = "payments";
/// The stream that [`Broker::prepare`] creates.
const STREAM: &str = "EVENTS";

/// What the service knows of its orders, by id.
async fn orders(service: &Client) -> Vec<(String, String)> {
    let rows = service.query("select id, payment from orders order by id", &[]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[tokio::test]
async fn a_service_follows_its_payments_through_nats() {
    let harness = Harness::start().await;
    harness.set_rail(RAIL, &json!({ "publish_outcomes": true, "on_unknown": "STOP" })).await;
    let broker =
        Broker::start(Kind::Nats, &BrokerAuth { password: PASSWORD.to_owned(), tls: None }).await.unwrap();
    broker.prepare(SUBJECT).await.unwrap();
    let password_file = harness.folder.path().join("password");
    std::fs::write(&password_file, PASSWORD).unwrap();
    let mut settings = harness.settings().without_inquiry();
    settings.extra = format!(
        "[event]\nsource = '//shop.example'\norder = 'aggregate'\npoll_interval = '250ms'\n\
         [[event.routes]]\naggregate_type = 'payment'\nevent_type = '*'\nsink = 'bus'\ndestination = '{SUBJECT}'\n\
         [sinks.bus]\nkind = 'nats'\nurl = 'nats://127.0.0.1:{}'\nuser = '{USER}'\npassword_file = {password_file:?}\n\
         allow_plain = true\n",
        broker.port()
    );
    let faults = json!({ "for_key": { "refused/1": ["refuse"], "unknown/1": ["cut_before"] } });
    harness.bank.set_faults(&faults).await;

    // The service: each order and its payment in one transaction, and a follower.
    let service = harness.superuser().await;
    service.batch_execute(follow_payments::TABLES).await.unwrap();
    for order in ["paid", "refused", "unknown"] {
        let payload =
            r#"{"amount": "10.00", "currency": "EUR", "destination": {"iban": "DE89370400440532013000"}}"#;
        service
            .execute(
                "with placed as (insert into orders (id) values ($1) returning id)
                 select symphony.enqueue_payment_outbox(id, 'shop', id || '/1', $2, $3::text::jsonb) from placed",
                &[&order, &RAIL, &payload],
            )
            .await
            .unwrap();
    }
    let follower = async || {
        let (database, connection) = tokio_postgres::connect(&harness.database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let nats = async_nats::ConnectOptions::with_user_and_password(USER.to_owned(), PASSWORD.to_owned());
        let nats = nats.connect(format!("127.0.0.1:{}", broker.port())).await.unwrap();
        follow_payments::follow(database, nats, STREAM).await.unwrap();
    };
    let relayer = harness.start_relayer(&settings).await;
    let expected = |unknown: &str| {
        let states = [("paid", "paid"), ("refused", "failed"), ("unknown", unknown)];
        states.map(|(id, state)| (id.to_owned(), state.to_owned())).to_vec()
    };
    let followed = async |unknown: &str, applied: i64| {
        let what = format!("the service knows its orders, the unknown one as {unknown}");
        until(what, DEFAULT_TIMEOUT, async || {
            let events = service.query_one("select count(*) from applied_events", &[]).await.unwrap();
            orders(&service).await == expected(unknown) && events.get::<_, i64>(0) == applied
        })
        .await
        .unwrap();
    };
    // A follower that stops and another that goes on in its place apply each event once.
    tokio::select! {
        () = follower() => panic!("the stream ended"),
        () = followed("in clarification", 3) => {}
    }
    let resolve =
        "select symphony.resolve_payment_outbox(outbox_id, 'PAID', 'ana', 'on the statement of the bank')
                   from symphony.payment_outbox_dlq where outcome_unknown";
    service.batch_execute(resolve).await.unwrap();
    tokio::select! {
        () = follower() => panic!("the stream ended"),
        () = followed("paid", 4) => {}
    }
    relayer.stop().await;
}
