//! Metadata to another PostgreSQL: one row per entity, written by one statement that compares versions.
//!
//! The table is `symphony_metadata`, wherever the `search_path` of the connection finds it: no text of SQL is assembled. This is
//! a wire format like any other here; the outbox and its rules are elsewhere. See `docs/sinks/metadata-postgres.md`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use symphony_outbox::connect::Target;
use symphony_relay::store::{Record, Written};
use tokio_postgres::Client;
use tokio_postgres::error::{Error, SqlState};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::broker::either;
use crate::config::{self, Problem, time};
use crate::courier::{Courier, Limits, Protocol, Sent, told};

const LARGEST: usize = 1024 * 1024;

/// Writes a record unless one of its version or later is there.
///
/// The conditions are always met, and are there for what they do before the row is looked for: what is confirmed is on disk even
/// where the server would answer earlier, and a row that somebody holds is not waited for after we have left.
const WRITE: &str = "\
    insert into symphony_metadata (entity_type, entity_id, metadata, version, entry_id, updated_at)
    select $1, $2, $3::text::jsonb, $4, $5, now()
    where set_config('lock_timeout', $6, true) is not null
    and case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end
        is distinct from ''
    on conflict (entity_type, entity_id) do update
    set metadata = excluded.metadata,
        version = excluded.version,
        entry_id = excluded.entry_id,
        updated_at = excluded.updated_at
    where symphony_metadata.version < excluded.version
    returning true";

/// Whether what kept a record out is that record.
const IS_THERE: &str = "\
    select version = $3
    from symphony_metadata
    where entity_type = $1 and entity_id = $2";

/// What to do about a table that is not as it should be.
const TABLE: &str =
    "create the table symphony_metadata as docs/sinks/metadata-postgres.md says, and set search_path in url";
const RIGHTS: &str =
    "the user may not do it: grant select, insert and update on symphony_metadata, and usage on its schema";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    password_env: Option<String>,
    password_file: Option<PathBuf>,
    #[serde(default)]
    allow_plain: bool,
    #[serde(default = "seconds::<10>", deserialize_with = "time")]
    timeout: Duration,
    #[serde(default = "seconds::<5>", deserialize_with = "time")]
    connect_timeout: Duration,
    #[serde(default = "largest")]
    max_bytes: usize,
}

fn seconds<const N: u64>() -> Duration {
    Duration::from_secs(N)
}

fn largest() -> usize {
    LARGEST
}

/// A table, as a courier needs it.
pub(crate) struct Postgres {
    target: Target,
    /// How long a row that somebody else holds is waited for, in milliseconds.
    patience: String,
}

impl Postgres {
    pub(crate) fn build(settings: toml::Table) -> Result<Courier<Self>, Problem> {
        let settings: Settings = config::read(settings)?;
        let target = Target::parse(&settings.url).map_err(|error| {
            let text = "must be postgres://user@host:port/database?sslmode=verify-full&sslrootcert=FILE";
            Problem::new("url", format!("{text}: {error}"))
        })?;
        if target.has_password() {
            return Err(Problem::new("url", "must hold no password: use password_env or password_file"));
        }
        if !settings.allow_plain && !target.is_protected() {
            let text =
                "must say sslmode=verify-full and sslrootcert; allow_plain = true lets connections go without TLS";
            return Err(Problem::new("url", text));
        }
        let password = either("password_env", &settings.password_env, "password_file", &settings.password_file)?;
        let target = password.map_or(target.clone(), |password| target.with_password(password.expose()));
        let limits = Limits::new(settings.timeout, settings.connect_timeout, settings.max_bytes)?;
        let patience = limits.timeout.as_millis().max(1).to_string();
        Ok(Courier::new(Self { target, patience }, limits))
    }

    async fn write(&self, client: &Client, record: &Record, entry_id: Uuid) -> Result<Written, Error> {
        let Record { entity_type, entity_id, version, metadata, .. } = record;
        let written = client
            .query_typed(
                WRITE,
                &[
                    (entity_type, Type::TEXT),
                    (entity_id, Type::TEXT),
                    (metadata, Type::TEXT),
                    (version, Type::INT8),
                    (&entry_id, Type::UUID),
                    (&self.patience, Type::TEXT),
                ],
            )
            .await?;
        if !written.is_empty() {
            return Ok(Written::Stored);
        }
        let keys = [(entity_type as _, Type::TEXT), (entity_id as _, Type::TEXT), (version as _, Type::INT8)];
        match client.query_typed(IS_THERE, &keys).await?.first().map(|row| row.try_get(0)).transpose()? {
            Some(true) => Ok(Written::Stored),
            Some(false) => Ok(Written::Superseded),
            None => Ok(Written::Failed("somebody deleted the row at the same moment".to_owned())),
        }
    }
}

impl Protocol for Postgres {
    type Load = Record;
    type Connection = Client;

    fn check(&self, record: &Record) -> Result<(), String> {
        Uuid::try_parse(&record.entry_id).map(|_| ()).map_err(|_| "its id must be a UUID".to_owned())
    }

    async fn connect(&self) -> Result<Client, String> {
        self.target.connect().await.map_err(|error| told(&error))
    }

    fn is_open(&self, client: &Client) -> bool {
        !client.is_closed()
    }

    async fn send(&self, client: &Client, record: &Record) -> Sent<Written> {
        let Ok(entry_id) = Uuid::try_parse(&record.entry_id) else {
            return Sent::refused("its id must be a UUID");
        };
        match self.write(client, record, entry_id).await {
            Ok(written) => Sent::Answered(written),
            Err(error) => meaning(&error),
        }
    }

    async fn close(&self, _: Arc<Client>) {}
}

/// What a server's error means, by its SQLSTATE: never by its words, which may quote the record.
fn meaning(error: &Error) -> Sent<Written> {
    let Some(state) = error.code() else {
        // No answer of the server's own: the connection is gone, or nobody understands it any more.
        return Sent::Broken(if error.is_closed() { "the connection was lost".to_owned() } else { told(error) });
    };
    let code = state.code();
    match state {
        // What is wrong with the table is wrong for every record: that is for people to mend, and no reason to give up records.
        &SqlState::UNDEFINED_TABLE
        | &SqlState::UNDEFINED_COLUMN
        | &SqlState::DATATYPE_MISMATCH
        | &SqlState::UNDEFINED_FUNCTION
        | &SqlState::INVALID_COLUMN_REFERENCE
        | &SqlState::INVALID_SCHEMA_NAME => Sent::failed(format!("{TABLE} [{code}]")),
        &SqlState::INSUFFICIENT_PRIVILEGE => Sent::failed(format!("{RIGHTS} [{code}]")),
        // After a failover the old primary is still there and takes no writes: look again.
        &SqlState::READ_ONLY_SQL_TRANSACTION => Sent::Broken("the server is a standby by now".to_owned()),
        &SqlState::LOCK_NOT_AVAILABLE => Sent::failed("somebody else holds the row"),
        // Data that it cannot keep, a constraint or a trigger of its owner's, an id that is too long for the index.
        _ if ["22", "23", "44", "54", "P0"].iter().any(|class| code.starts_with(class)) => {
            Sent::refused(format!("the database does not take it [{code}]"))
        }
        _ if code.starts_with("08") || code.starts_with("57P") => {
            Sent::Broken(format!("the server ended the session [{code}]"))
        }
        _ => Sent::failed(format!("the database could not take it [{code}]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(toml: &str) -> String {
        Postgres::build(toml.parse().unwrap()).err().unwrap().of_store("s").to_string()
    }

    #[test]
    fn a_password_comes_from_elsewhere_and_is_not_shown() {
        let said = refusal("url = 'postgres://u:hidden@db/x'\nallow_plain = true");
        assert!(said.starts_with("store s: url: must hold no password") && !said.contains("hidden"), "{said}");
        let said = refusal("url = 'postgres://u:hid den@db@x/x y'\nallow_plain = true");
        assert!(said.starts_with("store s: url: must be ") && !said.contains("hid"), "{said}");
    }

    #[test]
    fn a_server_that_nobody_vouches_for_is_refused_unless_the_settings_say_otherwise() {
        for mode in ["disable", "prefer", "require"] {
            let said = refusal(&format!("url = 'postgres://u@db/x?sslmode={mode}'"));
            assert!(said.contains("sslmode=verify-full") && said.contains("allow_plain = true"), "{said}");
        }
        assert!(Postgres::build("url = 'postgres://u@db/x'\nallow_plain = true".parse().unwrap()).is_ok());
        assert!(Postgres::build("url = 'host=/run/postgresql user=u dbname=x'".parse().unwrap()).is_ok());
    }
}
