//! Lists connected relayers by their sessions, including idle ones, which hold no lease.

use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::error::DatabaseError;

const CONNECTED: &str = "select worker_id, sessions from symphony.connected_relayers()";
/// Each listener holds a shared lock on its channel and its name; see `listener`.
const LISTENERS: &str = "\
    select coalesce(max(n.listeners), 0) \
    from ( \
      select count(*) as listeners \
      from unnest(array['outbox_pending', 'm10_outbox', 'metadata_outbox']) as c (channel) \
      join pg_locks l on (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(concat_ws(' ', c.channel, $1), 0) \
      where l.locktype = 'advisory' \
        and l.objsubid = 1 \
        and l.mode = 'ShareLock' \
        and l.database = (select d.oid from pg_database d where d.datname = current_database()) \
      group by c.channel \
    ) n";
/// The start of a relayer's `application_name`. `symphony.connected_relayers` looks for it.
const SESSION_NAME_PREFIX: &str = "symphony run ";
/// PostgreSQL truncates an `application_name` to this length.
const MAX_SESSION_NAME_BYTES: usize = 63;

/// A relayer with at least one session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct ConnectedRelayer {
    /// Its worker id, as far as its sessions show it: see [`visible_name`].
    pub worker_id: String,
    /// The number of its sessions.
    pub sessions: i64,
}

/// The `application_name` of this relayer's sessions.
#[must_use]
pub fn session_name(worker: &str) -> String {
    format!("{SESSION_NAME_PREFIX}{}", visible_name(worker))
}

/// The part of a worker id that its sessions show: truncated, with a question mark for each character that is not
/// printable ASCII.
#[must_use]
pub fn visible_name(worker: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    worker.chars().map(plain).take(MAX_SESSION_NAME_BYTES - SESSION_NAME_PREFIX.len()).collect()
}

/// The relayers with a session in this database. For `symphony_operator`, `symphony_readonly` and `symphony_auditor`.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn connected(client: &impl GenericClient) -> Result<Vec<ConnectedRelayer>, DatabaseError> {
    let rows = client.query_typed(CONNECTED, &[]).await?;
    let one = |row: &tokio_postgres::Row| {
        Ok(ConnectedRelayer { worker_id: row.try_get("worker_id")?, sessions: row.try_get("sessions")? })
    };
    rows.iter().map(one).collect()
}

/// How many relayers of this worker name listen on the same channel: more than one share their name. A relayer listens
/// once it has been idle, and its session may outlive it for a while.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn listeners_of(client: &impl GenericClient, worker: &str) -> Result<i64, DatabaseError> {
    let name = session_name(worker);
    Ok(client.query_typed_one(LISTENERS, &[(&name, Type::TEXT)]).await?.try_get(0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_session_is_what_a_server_keeps_of_it() {
        assert_eq!(session_name("host-1"), "symphony run host-1");
        assert_eq!(visible_name("höst\n1"), "h?st?1");
        assert_eq!(session_name(&"x".repeat(200)).len(), MAX_SESSION_NAME_BYTES);
    }
}
