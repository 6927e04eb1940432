//! Writes metadata to another PostgreSQL: one row per entity, by one statement that compares versions.
//!
//! The table is `symphony_metadata`, as the connection's `search_path` finds it: no SQL text is assembled. This file
//! knows only the format of that table, nothing of the outbox. See `docs/sinks/metadata-postgres.md`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use symphony_db::connect::Target;
use symphony_relay::store::{Record, Written};
use tokio_postgres::Client;
use tokio_postgres::error::{Error, SqlState};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::config::{self, SettingError, duration};
use crate::connection_manager::{ConnectionManager, Limits, SendResult, WireProtocol};
use crate::error_text::error_chain;
use crate::secret;

const DEFAULT_MAX_BYTES: usize = 1024 * 1024;

/// Writes a record unless the table holds this version or a later one.
///
/// The conditions are always true. They are evaluated before the row is looked up, for their side effects: a confirmed
/// write is on disk even if the server's default is `synchronous_commit = off`, and `lock_timeout` ends the wait for a
/// locked row when the relayer has given up.
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

/// Whether the row that blocked a write holds the same version.
const HAS_SAME_VERSION: &str = "\
    select version = $3
    from symphony_metadata
    where entity_type = $1 and entity_id = $2";

const WRONG_TABLE: &str =
    "create the table symphony_metadata as docs/sinks/metadata-postgres.md says, and set search_path in url";
const MISSING_RIGHTS: &str =
    "the user lacks rights: grant select, insert and update on symphony_metadata, and usage on its schema";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    password_env: Option<String>,
    password_file: Option<PathBuf>,
    #[serde(default)]
    allow_plain: bool,
    #[serde(default = "config::seconds::<10>", deserialize_with = "duration")]
    timeout: Duration,
    #[serde(default = "config::seconds::<5>", deserialize_with = "duration")]
    connect_timeout: Duration,
    #[serde(default = "default_max_bytes")]
    max_bytes: usize,
}

fn default_max_bytes() -> usize {
    DEFAULT_MAX_BYTES
}

/// The wire protocol of PostgreSQL, to one table.
pub(crate) struct Postgres {
    target: Target,
    /// How long the server waits for a row that another transaction has locked, in milliseconds.
    lock_timeout: String,
}

impl Postgres {
    pub(crate) fn build(settings: toml::Table) -> Result<ConnectionManager<Self>, SettingError> {
        let settings: Settings = config::read(settings)?;
        let target = Target::parse(&settings.url).map_err(|error| {
            let text = "must be postgres://user@host:port/database?sslmode=verify-full&sslrootcert=FILE";
            SettingError::new("url", format!("{text}: {error}"))
        })?;
        if target.has_password() {
            return Err(SettingError::new("url", "must contain no password: use password_env or password_file"));
        }
        if !settings.allow_plain && !target.is_protected() {
            let text = "must say sslmode=verify-full and sslrootcert; set allow_plain = true to permit connections without TLS";
            return Err(SettingError::new("url", text));
        }
        let password = secret::from_env_or_file(
            "password_env",
            &settings.password_env,
            "password_file",
            &settings.password_file,
        )?;
        let target = password.map_or(target.clone(), |password| target.with_password(password.expose()));
        let limits = Limits::new(settings.timeout, settings.connect_timeout, settings.max_bytes)?;
        let lock_timeout = limits.timeout.as_millis().max(1).to_string();
        Ok(ConnectionManager::new(Self { target, lock_timeout }, limits))
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
                    (&self.lock_timeout, Type::TEXT),
                ],
            )
            .await?;
        if !written.is_empty() {
            return Ok(Written::Stored);
        }
        let keys = [(entity_type as _, Type::TEXT), (entity_id as _, Type::TEXT), (version as _, Type::INT8)];
        match client.query_typed(HAS_SAME_VERSION, &keys).await?.first().map(|row| row.try_get(0)).transpose()? {
            Some(true) => Ok(Written::Stored),
            Some(false) => Ok(Written::Superseded),
            None => Ok(Written::Failed("another session deleted the row at the same moment".to_owned())),
        }
    }
}

impl WireProtocol for Postgres {
    type Delivery = Record;
    type Connection = Client;

    fn check(&self, record: &Record) -> Result<(), String> {
        Uuid::try_parse(&record.entry_id).map(|_| ()).map_err(|_| "its id must be a UUID".to_owned())
    }

    async fn connect(&self) -> Result<Client, String> {
        self.target.connect().await.map_err(|error| error_chain(&error))
    }

    fn is_open(&self, client: &Client) -> bool {
        !client.is_closed()
    }

    async fn send(&self, client: &Client, record: &Record) -> SendResult<Written> {
        let Ok(entry_id) = Uuid::try_parse(&record.entry_id) else {
            return SendResult::refused("its id must be a UUID");
        };
        match self.write(client, record, entry_id).await {
            Ok(written) => SendResult::Answered(written),
            Err(error) => classify(&error),
        }
    }

    async fn close(&self, _: Arc<Client>) {}
}

/// Maps a server error to the result of the send by its SQLSTATE. Its message is not used: it may quote the record.
fn classify(error: &Error) -> SendResult<Written> {
    let Some(state) = error.code() else {
        // No SQLSTATE: the connection is lost, or its protocol state is.
        return SendResult::ConnectionLost(if error.is_closed() {
            "the connection was lost".to_owned()
        } else {
            error_chain(error)
        });
    };
    let code = state.code();
    match state {
        // A wrong table fails every record until an operator corrects it: a retry loses no record.
        &SqlState::UNDEFINED_TABLE
        | &SqlState::UNDEFINED_COLUMN
        | &SqlState::DATATYPE_MISMATCH
        | &SqlState::UNDEFINED_FUNCTION
        | &SqlState::INVALID_COLUMN_REFERENCE
        | &SqlState::INVALID_SCHEMA_NAME => SendResult::failed(format!("{WRONG_TABLE} [{code}]")),
        &SqlState::INSUFFICIENT_PRIVILEGE => SendResult::failed(format!("{MISSING_RIGHTS} [{code}]")),
        // After a failover the old primary still answers and refuses writes: a new connection finds the new primary.
        &SqlState::READ_ONLY_SQL_TRANSACTION => {
            SendResult::ConnectionLost("the server is now a standby".to_owned())
        }
        &SqlState::LOCK_NOT_AVAILABLE => SendResult::failed("another transaction holds the lock on the row"),
        // Invalid data, a violated constraint, an exception in a trigger, an id that is too long for the index.
        _ if ["22", "23", "44", "54", "P0"].iter().any(|class| code.starts_with(class)) => {
            SendResult::refused(format!("the database rejects it [{code}]"))
        }
        _ if code.starts_with("08") || code.starts_with("57P") => {
            SendResult::ConnectionLost(format!("the server ended the session [{code}]"))
        }
        _ => SendResult::failed(format!("the database could not store it [{code}]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(toml: &str) -> String {
        Postgres::build(toml.parse().unwrap()).err().unwrap().for_store("s").to_string()
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_shown() {
        let error = refusal("url = 'postgres://u:hidden@db/x'\nallow_plain = true");
        assert!(
            error.starts_with("store s: url: must contain no password") && !error.contains("hidden"),
            "{error}"
        );
        let error = refusal("url = 'postgres://u:hid den@db@x/x y'\nallow_plain = true");
        assert!(error.starts_with("store s: url: must be ") && !error.contains("hid"), "{error}");
    }

    #[test]
    fn an_unverified_server_certificate_needs_allow_plain() {
        for mode in ["disable", "prefer", "require"] {
            let error = refusal(&format!("url = 'postgres://u@db/x?sslmode={mode}'"));
            assert!(error.contains("sslmode=verify-full") && error.contains("allow_plain = true"), "{error}");
        }
        assert!(Postgres::build("url = 'postgres://u@db/x'\nallow_plain = true".parse().unwrap()).is_ok());
        assert!(Postgres::build("url = 'host=/run/postgresql user=u dbname=x'".parse().unwrap()).is_ok());
    }
}
