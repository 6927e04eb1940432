//! A server with wal_level = logical, which the other tests do not have: there the proof about subscriptions tries its attacks.

use symphony_testkit::postgres::{Binaries, Cluster, Options};
use symphony_testkit::test_database::Server;

#[tokio::test]
async fn the_apply_worker_of_a_subscription_is_refused() {
    // Before 16 the second setting is also how often an apply worker is started.
    let settings = [("wal_level", "logical"), ("wal_retrieve_retry_interval", "50ms")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let options = Options { settings, ..Options::default() };
    let cluster = Cluster::start(&Binaries::find().unwrap(), options).await.unwrap();
    let database = Server::at(&cluster.url("postgres")).unwrap().database().await.unwrap();
    let proof = symphony_proof::named("append_only_tables_cannot_be_changed_by_a_subscription").unwrap();
    let evidence = proof.run(&database).await.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(evidence.steps.len(), 22, "a DELETE of 15 tables, an UPDATE of 4 and a TRUNCATE of 3");
    assert!(evidence.steps.iter().all(|step| step.happened.contains("nothing has changed")), "{evidence:?}");
    database.close().await.unwrap();
}
