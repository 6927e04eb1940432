//! Enqueues one payment over sqlx, in the transaction of a business row.
//!
//! Needs a database with Symphony, a registered rail `sepa`, and a login that may create a table:
//!
//! ```sh
//! DATABASE_URL=postgres://localhost/shop cargo run --example enqueue_sqlx --features sqlx
//! ```
//!
//! For a server on another host, enable a TLS feature of sqlx in your program.

use std::error::Error;

use serde_json::json;
use sqlx::{Connection, PgConnection};
use symphony_client::payment::{self, Instruction};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a PostgreSQL URL")?;
    let mut connection = PgConnection::connect(&url).await?;
    sqlx::query("create table if not exists orders (id text primary key, total text not null)")
        .execute(&mut connection)
        .await?;

    let payload =
        json!({ "amount": "10.50", "currency": "EUR", "destination": { "iban": "DE02120300000000202051" } });
    let instruction = Instruction::new("order-2", "shop-7", "order-2/pay", "sepa", payload);

    let mut transaction = connection.begin().await?;
    sqlx::query("insert into orders values ('order-2', '10.50') on conflict do nothing")
        .execute(&mut *transaction)
        .await?;
    // Last, because the participant's sequence stays locked until the commit.
    let enqueued = payment::sqlx::enqueue(&mut transaction, &instruction).await?;
    transaction.commit().await?;

    let replay = if enqueued.replayed { ", an idempotent replay" } else { "" };
    println!("outbox {}, number {} of shop-7{replay}", enqueued.outbox_id, enqueued.sequence_id);
    Ok(())
}
