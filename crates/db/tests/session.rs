//! Sessions that keep prepared statements, and one behind a pooler that must not.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use symphony_db::connect::{Session, Target};
use symphony_db::executor::Executor as _;
use symphony_testkit::pgbouncer::Pooler;
use symphony_testkit::test_database::Server;
use tokio_postgres::types::Type;

const STATEMENT: &str = "select $1 + 1 as more";
const PREPARED: &str = "select count(*) from pg_prepared_statements where statement = $1";

/// Runs the statement with both methods, and returns how often the server has it prepared.
async fn run(session: &Session) -> i64 {
    let rows = session.fetch_all(STATEMENT, &[(&1_i32, Type::INT4)]).await.unwrap();
    let row = session.fetch_one(STATEMENT, &[(&2_i32, Type::INT4)]).await.unwrap();
    assert_eq!((rows.len(), rows[0].get::<_, i32>("more"), row.get::<_, i32>("more")), (1, 2, 3));
    session.client().query_typed_one(PREPARED, &[(&STATEMENT, Type::TEXT)]).await.unwrap().get(0)
}

#[tokio::test]
async fn a_statement_is_prepared_once() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let session = Target::parse(&database.url()).unwrap().connect_session().await.unwrap();
    assert!(session.caches_statements());
    assert_eq!((run(&session).await, run(&session).await), (1, 1));
    drop(session);
    database.close().await.unwrap();
}

#[tokio::test]
async fn behind_a_pooler_no_statement_stays_prepared() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let pooler = Pooler::in_front_of(&database.url(), 1).await.unwrap();
    let target = Target::parse(&pooler.url_through(&database.url()).unwrap()).unwrap();
    // They share one session of the server: a name that one had given would be in the way of the other.
    for _ in 0..2 {
        let session = target.connect_session().await.unwrap();
        assert!(!session.caches_statements());
        assert_eq!((run(&session).await, run(&session).await), (0, 0));
    }
    drop(pooler);
    database.close().await.unwrap();
}
