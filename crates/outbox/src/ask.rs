//! Asking the database: by a connection of anybody's, or by one that remembers what it was asked.

use std::future::Future;

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, GenericClient, Row};

/// An argument, and what it is to the database.
pub type Argument<'a> = (&'a (dyn ToSql + Sync), Type);

/// Whatever the calls of a worker may go through: a client or a transaction of tokio-postgres, or a `connect::Session`.
pub trait Ask {
    /// Asks, and returns what came.
    fn ask(
        &self,
        question: &'static str,
        arguments: &[Argument<'_>],
    ) -> impl Future<Output = Result<Vec<Row>, Error>> + Send;

    /// Asks for exactly one row.
    fn ask_one(
        &self,
        question: &'static str,
        arguments: &[Argument<'_>],
    ) -> impl Future<Output = Result<Row, Error>> + Send;
}

/// In one round trip, without a name that would stay with the server: so it works behind any pooler.
impl<C: GenericClient + Sync> Ask for C {
    async fn ask(&self, question: &'static str, arguments: &[Argument<'_>]) -> Result<Vec<Row>, Error> {
        self.query_typed(question, arguments).await
    }

    async fn ask_one(&self, question: &'static str, arguments: &[Argument<'_>]) -> Result<Row, Error> {
        self.query_typed_one(question, arguments).await
    }
}
