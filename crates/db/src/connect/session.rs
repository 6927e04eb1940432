//! A connection that keeps prepared statements, unless it goes through a pooler.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Error, Row, Statement};

use super::backend_pid;
use crate::executor::{Argument, Executor};

/// The function of the server that warns when the wait of a commit for a synchronous standby was cancelled. Unlike the message it is in
/// no language.
const WAIT_FOR_STANDBY: &str = "SyncRepWaitForLSN";
const BACKEND_PID: &str = "select pg_catalog.pg_backend_pid()";
/// Unqualified names resolve to pg_catalog. The default path starts with a schema named after the login, which any
/// login with CREATE on the database can make; a better match for an operator there would be called instead.
const PIN_SEARCH_PATH: &str = "set search_path = pg_catalog, pg_temp";

/// A connection for callers that repeat a few statements: the server parses and plans each of them once.
///
/// A prepared statement belongs to one backend process. Behind a pooler each transaction may use another process, which
/// does not have the statement, or has another one under the same name. So nothing is prepared there.
#[derive(Debug)]
pub struct Session {
    client: Client,
    /// Prepared statements by their SQL; none behind a pooler.
    statements: Option<Mutex<HashMap<&'static str, Statement>>>,
    /// Set by a commit whose wait for a synchronous standby was cancelled.
    is_unreplicated: Arc<AtomicBool>,
}

impl Session {
    /// Detects a pooler. Without one, pins the search_path, which would otherwise stay on a session of the pooler.
    pub(super) async fn new(client: Client, is_unreplicated: Arc<AtomicBool>) -> Self {
        let announced = backend_pid::announced(&client).await;
        let actual = client.query_typed_one(BACKEND_PID, &[]).await.and_then(|row| row.try_get::<_, i32>(0));
        let direct = announced.is_some() && announced == actual.ok();
        if direct {
            // If this fails, the connection is broken, and the first call reports it.
            let _ = client.batch_execute(PIN_SEARCH_PATH).await;
        }
        Self { client, statements: direct.then(Mutex::default), is_unreplicated }
    }

    /// Whether a commit since the last call did not wait until a synchronous standby had it: a failover may lose it.
    #[must_use]
    pub fn take_unreplicated(&self) -> bool {
        self.is_unreplicated.swap(false, Ordering::AcqRel)
    }

    /// The connection itself.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The connection itself, for callers that repeat no statement.
    #[must_use]
    pub fn into_client(self) -> Client {
        self.client
    }

    /// Whether it keeps prepared statements, which is so if no pooler sits between it and the server.
    #[must_use]
    pub fn caches_statements(&self) -> bool {
        self.statements.is_some()
    }

    /// The prepared statement for `sql`; none behind a pooler.
    async fn statement(&self, sql: &'static str, arguments: &[Argument<'_>]) -> Result<Option<Statement>, Error> {
        let Some(statements) = &self.statements else { return Ok(None) };
        let known = statements.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let types: Vec<Type> = arguments.iter().map(|(_, kind)| kind.clone()).collect();
        let statement = self.client.prepare_typed(sql, &types).await?;
        statements.lock().unwrap_or_else(PoisonError::into_inner).insert(sql, statement.clone());
        Ok(Some(statement))
    }
}

/// Notes in a flag that a commit was not replicated. The server sends its warning before the result of the statement.
pub(super) fn note_unreplicated(flag: &AtomicBool, message: &AsyncMessage) {
    if matches!(message, AsyncMessage::Notice(notice) if notice.routine() == Some(WAIT_FOR_STANDBY)) {
        flag.store(true, Ordering::Release);
    }
}

impl Executor for Session {
    async fn fetch_all(&self, sql: &'static str, arguments: &[Argument<'_>]) -> Result<Vec<Row>, Error> {
        match self.statement(sql, arguments).await? {
            Some(statement) => self.client.query(&statement, &values(arguments)).await,
            None => self.client.fetch_all(sql, arguments).await,
        }
    }

    async fn fetch_one(&self, sql: &'static str, arguments: &[Argument<'_>]) -> Result<Row, Error> {
        match self.statement(sql, arguments).await? {
            Some(statement) => self.client.query_one(&statement, &values(arguments)).await,
            None => self.client.fetch_one(sql, arguments).await,
        }
    }
}

fn values<'a>(arguments: &[Argument<'a>]) -> Vec<&'a (dyn ToSql + Sync)> {
    arguments.iter().map(|(value, _)| *value).collect()
}
