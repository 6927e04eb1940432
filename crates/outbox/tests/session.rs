//! Sessions that remember what they were asked, and one that must not.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use symphony_outbox::ask::Ask as _;
use symphony_outbox::connect::{Session, Target};
use symphony_proof::kit::pgbouncer::Pooler;
use symphony_proof::kit::scratch::Server;
use tokio_postgres::types::Type;

const QUESTION: &str = "select $1 + 1 as more";
const READ: &str = "select count(*) from pg_prepared_statements where statement = $1";

/// Asks, by both ways, and returns how often the server knows the question now.
async fn ask(session: &Session) -> i64 {
    let rows = session.ask(QUESTION, &[(&1_i32, Type::INT4)]).await.unwrap();
    let row = session.ask_one(QUESTION, &[(&2_i32, Type::INT4)]).await.unwrap();
    assert_eq!((rows.len(), rows[0].get::<_, i32>("more"), row.get::<_, i32>("more")), (1, 2, 3));
    session.client().query_typed_one(READ, &[(&QUESTION, Type::TEXT)]).await.unwrap().get(0)
}

#[tokio::test]
async fn the_server_reads_a_question_once() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let session = Target::parse(&database.url()).unwrap().connect_to_ask().await.unwrap();
    assert!(session.remembers());
    assert_eq!((ask(&session).await, ask(&session).await), (1, 1));
    drop(session);
    database.close().await.unwrap();
}

#[tokio::test]
async fn behind_a_pooler_nothing_is_remembered() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let pooler = Pooler::before(&database.url(), 1).await.unwrap();
    let target = Target::parse(&pooler.instead_of(&database.url()).unwrap()).unwrap();
    // They share one session of the server: a name that one had given would be in the way of the other.
    for _ in 0..2 {
        let session = target.connect_to_ask().await.unwrap();
        assert!(!session.remembers());
        assert_eq!((ask(&session).await, ask(&session).await), (0, 0));
    }
    drop(pooler);
    database.close().await.unwrap();
}
