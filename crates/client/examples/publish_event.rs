//! Publishes one event over tokio-postgres, in the transaction of a business row.
//!
//! Needs a database with Symphony's event lane, and a login that may create a table:
//!
//! ```sh
//! DATABASE_URL=postgres://localhost/shop cargo run --example publish_event
//! ```

use std::error::Error;

use serde_json::json;
use symphony_client::event::{self, Event};
use tokio_postgres::NoTls;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a PostgreSQL URL")?;
    // Use a TLS connector, such as tokio-postgres-rustls, unless the server is on this host.
    let (mut client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    tokio::spawn(connection);
    client.batch_execute("create table if not exists shipments (id text primary key)").await?;

    let event = Event::new("shipment", "shipment-1", "ShipmentSent", json!({ "carrier": "DHL", "parcels": 2 }));

    let transaction = client.transaction().await?;
    let insert = "insert into shipments values ('shipment-1') on conflict do nothing";
    // Events have no idempotency key: publish only if this transaction made the change.
    if transaction.execute(insert, &[]).await? == 1 {
        let id = event::tokio_postgres::publish(&transaction, &event).await?;
        println!("event {id}");
    }
    transaction.commit().await?;
    Ok(())
}
