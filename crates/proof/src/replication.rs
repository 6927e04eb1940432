//! Changes by a subscription: its apply worker fires no statement trigger, and row triggers only if they are ENABLE ALWAYS or REPLICA.

use tokio_postgres::Client;

use super::evidence::{Evidence, Failure, Recorder};
use super::parent_tables::{LEDGER, PARTITION, PROTECTED, Protected, all_rows, definitions, populate};
use super::server_state;
use super::sessions::{Sessions, count, text};
use symphony_testkit::test_database::Database;

const PENDING: Protected = Protected {
    table: "symphony.payment_outbox_pending",
    key: &[("outbox_id", "uuid")],
    column: ("payload", "jsonb"),
    other: "'{\"changed\": true}'",
};

/// Proof 31: `append_only_tables_cannot_be_changed_by_a_subscription`.
pub(super) async fn changes_nothing(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    let sessions = Sessions::connect(database).await?;
    populate(&sessions).await?;
    let superuser = database.connect().await?;
    let level = text(&superuser, "select current_setting('wal_level')", &[]).await?;
    if level != "logical" {
        recorder.check(
            "changing rows by a subscription",
            "refused",
            format!("not tried, because wal_level of this server is {level} and a subscription needs logical"),
            true,
        )?;
        return Ok(recorder.finish());
    }
    let origin = database.empty_sibling().await?;
    let publisher = origin.connect().await?;
    let mut end = Ok(());
    for protected in PROTECTED.into_iter().chain([PARTITION, PENDING]) {
        // Before version 16 a server starts one apply worker per 5 seconds, so not every attack is tried on every table.
        let table = protected.table;
        let mut attacks = vec![format!("delete from {table}")];
        if matches!(
            table,
            LEDGER | "symphony.payment_outbox_pending" | "m10_recovery.outbox" | "symphony.metadata_outbox"
        ) {
            attacks.push(format!("update {table} set {} = {}", protected.column.0, protected.other));
        }
        if matches!(table, LEDGER | "symphony.payment_outbox_pending") || table == PARTITION.table {
            attacks.push(format!("truncate {table}"));
        }
        for attack in attacks {
            let subscriber =
                Subscriber { session: &superuser, publisher: &publisher, publisher_url: &origin.url() };
            let tried = subscriber.tries(&mut recorder, protected, &attack).await;
            let left = subscriber.clean_up(protected.table).await;
            end = tried.and(left);
            if end.is_err() {
                break;
            }
        }
        if end.is_err() {
            break;
        }
    }
    drop(publisher);
    origin.close().await?;
    end.map(|()| recorder.finish())
}

/// The database under test, and the one whose changes it subscribes to, on the same server.
struct Subscriber<'a> {
    session: &'a Client,
    publisher: &'a Client,
    publisher_url: &'a str,
}

impl Subscriber<'_> {
    /// Publishes a table of the same name and key, changes it there, and checks what the apply worker does here.
    async fn tries(&self, recorder: &mut Recorder, protected: Protected, attack: &str) -> Result<(), Failure> {
        let Protected { table, key, column, .. } = protected;
        let schema = table.split('.').next().unwrap_or_default();
        let columns = if key.contains(&column) { String::new() } else { format!(", {} {}", column.0, column.1) };
        let names = key.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let values = key.iter().map(|(name, _)| format!("quote_literal({name})")).collect::<Vec<_>>().join(", ");
        let keys = format!("select string_agg(concat_ws(', ', {values}), '), (') from {table}");
        let keys = text(self.session, &keys, &[]).await?;
        // A change of a control table shows that everything before it was applied.
        self.session.batch_execute("create table public.control (id int primary key, note text)").await?;
        self.publisher
            .batch_execute(&format!(
                "create schema if not exists {schema};
                 create table {table} ({}{columns}, primary key ({names}));
                 create table public.control (id int primary key, note text);
                 insert into {table} ({names}) values ({keys});
                 create publication attack for table {table}, public.control;",
                definitions(key)
            ))
            .await?;
        self.publisher.batch_execute("select pg_create_logical_replication_slot('attack', 'pgoutput')").await?;
        let before = all_rows(self.session).await?;
        self.session
            .batch_execute(&format!(
                "create subscription attack connection '{}' publication attack
                 with (slot_name = 'attack', create_slot = false, copy_data = false, disable_on_error = true)",
                self.publisher_url
            ))
            .await?;
        self.publisher.batch_execute("insert into public.control values (1, 'the subscription works')").await?;
        self.sees("select count(*) from public.control where id = 1").await?;
        self.publisher
            .batch_execute(&format!("begin; {attack}; insert into public.control values (2, 'changed'); commit"))
            .await?;
        self.sees(
            "select (select count(*) from public.control where id = 2)
                  + (select count(*) from pg_subscription where subname = 'attack' and not subenabled)",
        )
        .await?;
        let stopped = count(
            self.session,
            "select count(*) from pg_subscription where subname = 'attack' and not subenabled",
            &[],
        )
        .await?;
        let after = all_rows(self.session).await?;
        recorder.check(
            format!("a subscription that applies: {attack}"),
            "its apply worker stops with an error, and nothing has changed",
            format!(
                "{}, {}",
                if stopped == 1 { "it stopped with an error" } else { "it went on" },
                if before == after { "nothing has changed" } else { "rows have changed" }
            ),
            stopped == 1 && before == after,
        )
    }

    async fn sees(&self, query: &str) -> Result<(), Failure> {
        server_state::count_is_positive(self.session, query, "the apply worker has come to it").await
    }

    /// Drops the subscription and its objects.
    async fn clean_up(&self, table: &str) -> Result<(), Failure> {
        let subscribed =
            count(self.session, "select count(*) from pg_subscription where subname = 'attack'", &[]).await?;
        if subscribed > 0 {
            self.session.batch_execute("alter subscription attack disable").await?;
            self.session.batch_execute("alter subscription attack set (slot_name = none)").await?;
            self.session.batch_execute("drop subscription attack").await?;
        }
        self.session.batch_execute("drop table if exists public.control").await?;
        let free = "select (not exists (select from pg_replication_slots where slot_name = 'attack' and active))::int::bigint";
        server_state::count_is_positive(self.publisher, free, "the replication slot is free").await?;
        let drop =
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = 'attack'";
        self.publisher.batch_execute(drop).await?;
        self.publisher
            .batch_execute(&format!(
                "drop publication if exists attack; drop table if exists {table}; drop table if exists public.control"
            ))
            .await?;
        Ok(())
    }
}
