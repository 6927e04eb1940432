//! Runs a worker's calls on a client or transaction of tokio-postgres, or on a [`Session`](crate::connect::Session)
//! that keeps prepared statements.
//!
//! tokio-postgres seals its own `GenericClient`, so a session cannot implement that one.

use std::future::Future;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, GenericClient, Row};

/// An argument with its PostgreSQL type.
pub type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

/// Runs one statement with typed arguments.
pub trait Executor {
    /// All rows.
    fn fetch_all(
        &self,
        statement: &'static str,
        arguments: &[Argument<'_>],
    ) -> impl Future<Output = Result<Vec<Row>, Error>> + Send;

    /// Exactly one row.
    fn fetch_one(
        &self,
        statement: &'static str,
        arguments: &[Argument<'_>],
    ) -> impl Future<Output = Result<Row, Error>> + Send;
}

/// One round trip without a named statement, so it works behind any pooler.
impl<C: GenericClient + Sync> Executor for C {
    async fn fetch_all(&self, statement: &'static str, arguments: &[Argument<'_>]) -> Result<Vec<Row>, Error> {
        self.query_typed(statement, arguments).await
    }

    async fn fetch_one(&self, statement: &'static str, arguments: &[Argument<'_>]) -> Result<Row, Error> {
        self.query_typed_one(statement, arguments).await
    }
}
