//! Enqueues one payment over tokio-postgres, in the transaction of a business row.
//!
//! Needs a database with Symphony, a registered rail `sepa`, and a login that may create a table:
//!
//! ```sh
//! DATABASE_URL=postgres://localhost/shop cargo run --example enqueue_tokio_postgres
//! ```

use std::error::Error;

use serde_json::json;
use symphony_client::payment::{self, Instruction};
use tokio_postgres::NoTls;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a PostgreSQL URL")?;
    // Use a TLS connector, such as tokio-postgres-rustls, unless the server is on this host.
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("create table if not exists orders (id text primary key, total text not null)").await?;

    let payload =
        json!({ "amount": "10.50", "currency": "EUR", "destination": { "iban": "DE02120300000000202051" } });
    let instruction = Instruction::new("order-1", "shop-7", "order-1/pay", "sepa", payload);

    let transaction = client.transaction().await?;
    transaction.execute("insert into orders values ('order-1', '10.50') on conflict do nothing", &[]).await?;
    // Last, because the participant's sequence stays locked until the commit.
    let enqueued = payment::tokio_postgres::enqueue(&transaction, &instruction).await?;
    transaction.commit().await?;

    let replay = if enqueued.replayed { ", an idempotent replay" } else { "" };
    println!("outbox {}, number {} of shop-7{replay}", enqueued.outbox_id, enqueued.sequence_id);
    Ok(())
}
