//! The metadata lane: create entries about entities, for a second store.
//!
//! In the transaction that writes the entity:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let database = symphony_testkit::test_database::Server::from_env().await?.database().await?;
//! # let mut client = database.connect().await?;
//! # client.batch_execute("create table documents (id text primary key)").await?;
//! use serde_json::json;
//! use symphony_client::metadata::{self, Entity, Entry};
//!
//! let transaction = client.transaction().await?;
//! transaction.execute("insert into documents values ($1)", &[&"doc-1"]).await?;
//! let entity = Entity::new("document", "doc-1")?;
//! let entry = Entry::new(entity, json!({ "title": "Contract", "pages": 12 }));
//! let id = metadata::tokio_postgres::create(&transaction, &entry).await?;
//! transaction.commit().await?;
//! # let committed = "select count(*) from symphony.metadata_outbox_entries e, documents where e.id = $1";
//! # assert_eq!(client.query_one(committed, &[&id.0]).await?.get::<_, i64>(0), 1);
//! # drop(client);
//! # database.close().await?;
//! # Ok(())
//! # }
//! ```

mod entry;
#[cfg(feature = "sqlx")]
pub mod sqlx;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;

pub use crate::ids::EntryId;
pub use entry::{Entity, Entry, InvalidEntity};
