//! A connection that remembers what it was asked.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

use super::announced;
use crate::ask::{Argument, Ask};

const PROCESS: &str = "select pg_catalog.pg_backend_pid()";
/// A name without a schema means what the server itself has. By default the path begins with a schema that is called like the
/// login and that anybody with CREATE on the database can make; there, a better match for an operator would be called.
const PIN: &str = "set search_path = pg_catalog, pg_temp";

/// A connection for whoever asks the same few questions all the time: the server reads and plans each of them once.
///
/// What it has read stays with the process that serves the connection, under a name. Behind a pooler each transaction may be served by
/// another process, which knows no such name, or knows another's question by it. There, nothing is remembered.
#[derive(Debug)]
pub struct Session {
    client: Client,
    /// What the server has read; none behind a pooler.
    read: Option<Mutex<HashMap<&'static str, Statement>>>,
}

impl Session {
    /// Finds out who answers, and pins the search_path unless that would be left behind in a pooler's session.
    pub(super) async fn over(client: Client) -> Self {
        let announced = announced::process(&client).await;
        let answers = client.query_typed_one(PROCESS, &[]).await.and_then(|row| row.try_get::<_, i32>(0));
        let direct = announced.is_some() && announced == answers.ok();
        if direct {
            // If this fails the connection is broken, and the first call says so.
            let _ = client.batch_execute(PIN).await;
        }
        Self { client, read: direct.then(Mutex::default) }
    }

    /// The connection itself.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The connection itself, for one who asks once.
    #[must_use]
    pub fn into_client(self) -> Client {
        self.client
    }

    /// Whether it remembers: that is, whether no pooler stands between it and the server.
    #[must_use]
    pub fn remembers(&self) -> bool {
        self.read.is_some()
    }

    /// The question as the server has read it; none where it is to be read each time.
    async fn statement(
        &self,
        question: &'static str,
        arguments: &[Argument<'_>],
    ) -> Result<Option<Statement>, Error> {
        let Some(read) = &self.read else { return Ok(None) };
        let known = read.lock().unwrap_or_else(PoisonError::into_inner).get(question).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let types: Vec<Type> = arguments.iter().map(|(_, kind)| kind.clone()).collect();
        let statement = self.client.prepare_typed(question, &types).await?;
        read.lock().unwrap_or_else(PoisonError::into_inner).insert(question, statement.clone());
        Ok(Some(statement))
    }
}

impl Ask for Session {
    async fn ask(&self, question: &'static str, arguments: &[Argument<'_>]) -> Result<Vec<Row>, Error> {
        match self.statement(question, arguments).await? {
            Some(statement) => self.client.query(&statement, &values(arguments)).await,
            None => self.client.ask(question, arguments).await,
        }
    }

    async fn ask_one(&self, question: &'static str, arguments: &[Argument<'_>]) -> Result<Row, Error> {
        match self.statement(question, arguments).await? {
            Some(statement) => self.client.query_one(&statement, &values(arguments)).await,
            None => self.client.ask_one(question, arguments).await,
        }
    }
}

fn values<'a>(arguments: &[Argument<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    arguments.iter().map(|(value, _)| *value).collect()
}
