//! Which relayers are there, by their sessions: also those that hold no work and so leave no other trace.

use serde::Serialize;
use tokio_postgres::GenericClient;

use crate::error::Fault;

const CONNECTED: &str = "select worker_id, sessions from symphony.connected_relayers()";
/// How the name of a relayer's session begins. `symphony.connected_relayers` looks for it.
const RELAYER: &str = "symphony run ";
/// PostgreSQL cuts the name of a session to so many bytes.
const LONGEST: usize = 63;

/// A relayer that has a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Connected {
    /// Its name, as much of it as a session can be named by: see [`shown`].
    pub worker_id: String,
    /// How many sessions it has.
    pub sessions: i64,
}

/// The name for the sessions of this relayer.
#[must_use]
pub fn session_name(worker: &str) -> String {
    format!("{RELAYER}{}", shown(worker))
}

/// As much of a relayer's name as its sessions show: what fits, and what is not ASCII as a question mark.
#[must_use]
pub fn shown(worker: &str) -> String {
    let plain = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    worker.chars().map(plain).take(LONGEST - RELAYER.len()).collect()
}

/// The relayers that have a session in this database now. For `symphony_operator`, `symphony_readonly` and `symphony_auditor`.
///
/// # Errors
///
/// See [`Fault`].
pub async fn connected(client: &impl GenericClient) -> Result<Vec<Connected>, Fault> {
    let rows = client.query_typed(CONNECTED, &[]).await?;
    let one = |row: &tokio_postgres::Row| {
        Ok(Connected { worker_id: row.try_get("worker_id")?, sessions: row.try_get("sessions")? })
    };
    rows.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_session_is_what_a_server_keeps_of_it() {
        assert_eq!(session_name("host-1"), "symphony run host-1");
        assert_eq!(shown("höst\n1"), "h?st?1");
        assert_eq!(session_name(&"x".repeat(200)).len(), LONGEST);
    }
}
