//! The end of an export with prepared transactions, and on a standby.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use symphony_db::connect::Target;
use symphony_testkit::postgres::{Binaries, Cluster, Options, Standby};
use symphony_testkit::test_database::Server;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio_postgres::Client;

const PAUSE: &str = "select symphony.pause_payment_rail('sepa', 'mallory', 'late')";
const END: &str = "select symphony.audit_export_end('infinity', $1)::text";
const BEFORE: &str = "select count(*) from symphony.payment_outbox_operations_log
                      where operation = 'PAUSE_RAIL' and created_at < $1::text::timestamptz";

/// The SQLSTATE and the message of a refusal.
async fn refusal(auditor: &Client) -> (String, String) {
    let error = auditor.query_one(END, &[&0_i32]).await.unwrap_err();
    let output = error.as_db_error().unwrap();
    (output.code().code().to_owned(), output.message().to_owned())
}

#[tokio::test]
async fn prepared_transactions_are_waited_for_and_a_standby_refuses() {
    let options =
        Options { settings: vec![("max_prepared_transactions".to_owned(), "4".to_owned())], ..Options::default() };
    let cluster = Cluster::start(&Binaries::find().unwrap(), options.clone()).await.unwrap();
    let server = Server::at(&cluster.url("postgres")).unwrap();
    let database = server.database().await.unwrap();
    let owner = database.connect().await.unwrap();
    owner.batch_execute("select symphony.register_payment_rail('sepa', '{}', 'ana', 'a test')").await.unwrap();
    let auditor = database.connect_as_login(&["symphony_auditor"]).await.unwrap();

    // Prepared before the export: no session holds it any more.
    owner.batch_execute(&format!("begin; {PAUSE}; prepare transaction 'left behind'")).await.unwrap();
    let (state, words) = refusal(&auditor).await;
    assert!(state == "55P03" && words.contains("prepared transaction 'left behind'"), "{state}: {words}");
    owner.batch_execute("commit prepared 'left behind'").await.unwrap();
    let end: String = auditor.query_one(END, &[&0_i32]).await.unwrap().get(0);
    assert_eq!(auditor.query_one(BEFORE, &[&end]).await.unwrap().get::<_, i64>(0), 1);

    // Prepared while the export waits for its session: its locks go on without one.
    owner.batch_execute(&format!("begin; {PAUSE}")).await.unwrap();
    let reader: i32 = auditor.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let watcher = database.connect().await.unwrap();
    let asked = tokio::spawn(async move {
        let end = auditor.query_one(END, &[&60_000_i32]).await.unwrap().get::<_, String>(0);
        auditor.query_one(BEFORE, &[&end]).await.unwrap().get::<_, i64>(0)
    });
    let sleeps = "select exists (select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep')";
    let waits = async || watcher.query_one(sleeps, &[&reader]).await.unwrap().get::<_, bool>(0);
    until("the export waits", DEFAULT_TIMEOUT, waits).await.unwrap();
    owner.batch_execute("prepare transaction 'slipped away'").await.unwrap();
    // It still waits after several polls.
    for _ in 0..20 {
        until("the export waits", DEFAULT_TIMEOUT, waits).await.unwrap();
    }
    assert!(!asked.is_finished());
    owner.batch_execute("commit prepared 'slipped away'").await.unwrap();
    assert_eq!(asked.await.unwrap(), 2, "what was prepared meanwhile is in the export that waited");

    let standby = cluster.standby(Standby { options, ..Standby::default() }).await.unwrap();
    let reader = Target::parse(&standby.url(database.name())).unwrap().connect().await.unwrap();
    let (state, words) = refusal(&reader).await;
    assert!(state == "55000" && words.contains("standby"), "{state}: {words}");
}
