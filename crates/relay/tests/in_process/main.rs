//! A relayer in the test's own process: the examples, what is refused at the start, and the test kit for users.

#![cfg(test)]

mod examples;
mod startup;
mod test_kit;

use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio_postgres::Client;

/// A database with a rail, and a session of its owner.
async fn database(rail: &str) -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let owner = database.connect().await.unwrap();
    let register = "select symphony.register_payment_rail($1, '{}', 'ana', 'a test')";
    owner.execute(register, &[&rail]).await.unwrap();
    (database, owner)
}

async fn enqueue(owner: &Client, rail: &str, key: &str, payload: &str) {
    let call = "select symphony.enqueue_payment_outbox($1, 'merchant-1', $1, $2, $3::text::jsonb)";
    owner.execute(call, &[&key, &rail, &payload]).await.unwrap();
}

/// Waits until the ledger has the terminal row of a key, with this state.
async fn ends_as(owner: &Client, key: &str, state: &str) {
    let query = "select from symphony.payment_outbox_attempts where idempotency_key = $1 and state::text = $2";
    let ended = async || owner.query_opt(query, &[&key, &state]).await.unwrap().is_some();
    until(format!("{key} is {state}"), DEFAULT_TIMEOUT, ended).await.unwrap();
}
