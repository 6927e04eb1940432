//! An operation that commits late is in exactly one export.

use symphony_testkit::test_database::Server;
use tokio_postgres::Client;

use crate::program::{Ran, symphony};

// A change of policy lets its session end soon where it is left open: an attacker does not.
const PAUSE: &str = "select symphony.pause_payment_rail('sepa', 'mallory', 'not to be seen');
                     set local idle_in_transaction_session_timeout = 0";

/// The time of the server, as an argument.
async fn now(client: &Client) -> String {
    let utc = "select to_char(clock_timestamp() at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
    client.query_one(utc, &[]).await.unwrap().get(0)
}

fn export(url: &str, from: &str, to: &str) -> Ran {
    symphony(url, &["audit", "operations", "--from", from, "--to", to])
}

#[tokio::test]
async fn an_operation_of_a_transaction_begun_before_an_export_is_in_the_next_one() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    symphony(&database.url(), &["rail", "add", "sepa", "--actor", "ana", "--reason", "go-live"]).exits(0);
    let auditor = database.url_as_login(&["symphony_auditor"]).await.unwrap();
    let owner = database.connect().await.unwrap();
    let operator = database.connect_as_login(&["symphony_operator"]).await.unwrap();

    operator.batch_execute("begin").await.unwrap();
    let end = now(&owner).await;
    let first = export(&auditor, "2020-01-01T00:00Z", &end).exits(0).stdout;
    operator.batch_execute(PAUSE).await.unwrap();
    operator.batch_execute("commit").await.unwrap();
    let second = export(&auditor, &end, &now(&owner).await).exits(0).stdout;
    assert_eq!((first.matches("PAUSE_RAIL").count(), second.matches("PAUSE_RAIL").count()), (0, 1), "{second}");
    database.close().await.unwrap();
}

#[tokio::test]
async fn an_export_is_refused_while_an_operation_is_not_committed_and_names_its_session() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    symphony(&database.url(), &["rail", "add", "sepa", "--actor", "ana", "--reason", "go-live"]).exits(0);
    let auditor = database.url_as_login(&["symphony_auditor"]).await.unwrap();
    let owner = database.connect().await.unwrap();
    let operator = database.connect_as_login(&["symphony_operator"]).await.unwrap();
    let session = operator.query_one("select format('session %s of %s', pg_backend_pid(), session_user)", &[]);
    let session: String = session.await.unwrap().get(0);

    operator.batch_execute("begin").await.unwrap();
    operator.batch_execute(PAUSE).await.unwrap();
    let end = now(&owner).await;
    let refused = export(&auditor, "2020-01-01T00:00Z", &end).exits(3);
    assert!(refused.stdout.is_empty() && refused.stderr.contains(&session), "{}", refused.all());
    assert!(refused.stderr.contains("pg_terminate_backend"), "{}", refused.all());
    operator.batch_execute("commit").await.unwrap();
    let first = export(&auditor, "2020-01-01T00:00Z", &end).exits(0).stdout;
    let second = export(&auditor, &end, "2099-01-01T00:00Z").exits(0);
    assert_eq!(first.matches("PAUSE_RAIL").count() + second.stdout.matches("PAUSE_RAIL").count(), 1, "{first}");
    assert!(second.stderr.contains("start the next one with --from"), "{}", second.all());
    export(&auditor, "2098-01-01T00:00Z", "2099-01-01T00:00Z").exits(1);
    database.close().await.unwrap();
}
