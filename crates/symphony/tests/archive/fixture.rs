//! A ledger of some weeks with a retention of two, and runs of `symphony archive`.

use std::path::{Path, PathBuf};
use std::process::Command;

use symphony_testkit::ledger_partitions;
use symphony_testkit::test_database::{Database, Server};
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::program::{Ran, symphony};

/// The ledger rows of each week.
pub(crate) const ROWS_PER_WEEK: i32 = 500;

/// A database with a ledger, and a folder for archives.
pub(crate) struct Fixture {
    pub(crate) database: Database,
    /// A superuser's session.
    pub(crate) client: Client,
    /// A superuser. A member of symphony_control would do, but every test shares the roles of the server.
    pub(crate) owner_url: String,
    folder: TempDir,
}

impl Fixture {
    /// Rows of this many weeks, each in a partition. Those that ended more than two weeks ago are past their retention.
    pub(crate) async fn new(weeks: i32) -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let client = database.connect().await.unwrap();
        let owner_url = database.url();
        ledger_partitions::age(&client, weeks).await.unwrap();
        // Of each week, one outbox was tried twice and then failed, and was resolved by the key of another outbox.
        let rows = format!(
            "select symphony.register_payment_rail('bank', '{{}}', 'test', 'archive');
             create temp table weeks as
               select row_number() over (order by p.ends_at) - 1 as week, p.ends_at
               from symphony.payment_ledger_partitions() p
               where p.ends_at <= now();
             insert into symphony.payment_outbox_attempts
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state, claimed_at,
                worker_id, created_at, completed_at, error_code, error_message)
             select (left(symphony.uuidv7_lower_bound(h.at)::text, 15) || right(md5(h.o::text), 3) || '-8' || left(md5(h.o::text), 3) || '-'
                     || right(md5(h.o::text), 12))::uuid,
                    'i-' || h.o, 'p-' || h.o % 7, h.o, 'k-' || h.o, 'bank', jsonb_build_object('amount', '10.00', 'name', E'Zo\\u00e9 \"\\\\\\n' || h.o),
                    h.attempt, h.state::symphony.outbox_attempt_state, h.at, 'w', h.at, h.at + interval '1 second', h.code, h.message
             from (
               select w.week * {ROWS_PER_WEEK} + i - (i = {ROWS_PER_WEEK})::int as o,
                      w.ends_at - interval '150 hours' + (i - (i = {ROWS_PER_WEEK})::int) * interval '10 minutes' / 10 as at,
                      case i when {ROWS_PER_WEEK} then 2 else 1 end as attempt,
                      case i when {ROWS_PER_WEEK} then 'FAILED' when {ROWS_PER_WEEK} - 1 then 'RETRYABLE' else 'DISPATCHED' end as state,
                      case when i >= {ROWS_PER_WEEK} - 1 then 'REJECTED' end as code,
                      case when i >= {ROWS_PER_WEEK} - 1 then E'closed\\taccount' end as message
               from weeks w, generate_series(1, {ROWS_PER_WEEK}) i
             ) h;
             insert into symphony.payment_outbox_keys (idempotency_key, instruction_id, outbox_id, content_digest, created_at)
             select idempotency_key, instruction_id, outbox_id, sha256('x'), created_at
             from symphony.payment_outbox_attempts
             where attempt_no = 1;
             insert into symphony.payment_outbox_operations (operation_id, operation, outbox_id, resolution, rail_type, actor, reason)
             select symphony.uuidv7(), 'RESOLVE', outbox_id, 'SKIPPED', 'bank', 'ana', 'a test'
             from symphony.payment_outbox_attempts
             where state = 'FAILED';
             select symphony.set_retention('payment_ledger', 14, 'ana', 'a test')"
        );
        client.batch_execute(&rows).await.unwrap();
        Self { database, client, owner_url, folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn folder(&self) -> &str {
        self.path().to_str().unwrap()
    }

    /// The folders of the archives, in order.
    pub(crate) fn archives(&self) -> Vec<PathBuf> {
        let mut found: Vec<_> = std::fs::read_dir(self.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir() && !path.file_name().unwrap().to_str().unwrap().starts_with('.'))
            .collect();
        found.sort();
        found
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["archive", "--to", self.folder(), "--actor", "ana", "--reason", "a test"], more].concat()
    }

    /// Runs `symphony archive` with these arguments as well.
    pub(crate) fn archive(&self, more: &[&str]) -> Ran {
        symphony(&self.owner_url, &self.arguments(more))
    }

    /// A run that aborts at this step.
    pub(crate) fn archive_until(&self, step: &str) -> Ran {
        let output = self.command().env("SYMPHONY_FAIL_POINT", step).output().unwrap();
        Ran {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The command, to be started by the caller.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_symphony"));
        command.args(self.arguments(&[])).env("DATABASE_URL", &self.owner_url);
        command
    }

    pub(crate) async fn execute(&self, statements: &str) {
        self.client.batch_execute(statements).await.unwrap();
    }

    pub(crate) async fn query(&self, statement: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(statement).await
    }

    pub(crate) async fn text(&self, query: &str) -> String {
        self.client.query_one(query, &[]).await.unwrap().get::<_, Option<String>>(0).unwrap_or_default()
    }

    pub(crate) async fn number(&self, query: &str) -> i64 {
        self.client.query_one(query, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn ledger_rows(&self) -> i64 {
        self.number("select count(*) from symphony.payment_outbox_attempts").await
    }

    /// The first partition is empty and begins at the lowest id, and no table of the ledger is left outside of it.
    pub(crate) async fn starts_at_the_lowest_id(&self) {
        let first = "select count(*) from symphony.payment_ledger_partitions() p
                     where p.from_id is null and not exists (select from symphony.payment_outbox_attempts a where a.outbox_id < p.to_id)";
        assert_eq!(self.number(first).await, 1);
        let detached = "select count(*) from pg_class c
                        where c.relname like 'payment\\_outbox\\_attempts\\_from\\_%' and c.relkind = 'r'
                          and not exists (select from pg_inherits h where h.inhrelid = c.oid)";
        assert_eq!(self.number(detached).await, 0);
    }
}
