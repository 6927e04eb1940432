//! Sessions of a pool whose cached plans are stale.

use std::sync::Arc;

use symphony_db::connect::{Session, Target};
use symphony_db::error::DatabaseError;
use symphony_db::executor::Executor as _;
use symphony_relay::lane::LaneError;
use symphony_relay::session_pool::SessionPool;
use symphony_testkit::test_database::Server;

async fn shape(session: &Session) -> Result<String, DatabaseError> {
    Ok(session.fetch_one("select public.shape() as shape", &[]).await?.columns()[0].type_().name().to_owned())
}

#[tokio::test]
async fn a_session_with_a_stale_plan_is_replaced() {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let admin = database.connect().await.unwrap();
    let define = async |kind: &str| {
        let statement = format!(
            "drop function if exists public.shape(); create function public.shape() returns {kind} language sql as 'select null::{kind}'"
        );
        admin.batch_execute(&statement).await.unwrap();
    };
    let pool = SessionPool::new(Arc::new(Target::parse(&database.url()).unwrap()));
    define("int").await;
    assert_eq!(pool.call(shape).await.unwrap(), "int4");
    define("text").await;
    // As after an upgrade: a retry succeeds, so it must not count as a refusal.
    let error = pool.call(shape).await.unwrap_err();
    assert!(matches!(error, LaneError::Unavailable(_)), "{error:?}");
    assert_eq!(pool.call(shape).await.unwrap(), "text");
    drop((pool, admin));
    database.close().await.unwrap();
}
