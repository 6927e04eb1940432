//! Epochs: which history of the data a server has. A claim on another server than that of the newest epoch opens a new
//! one; so can an operator.

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use crate::error::{DatabaseError, OperateError};
use crate::executor::Executor;
use crate::payment::operator::AuditContext;

const NEWEST_FIRST: &str = "\
    select counter, system_identifier, timeline, opened_at, reason, database_user \
    from symphony.epochs \
    order by counter desc \
    limit $1";
const OPEN: &str = "\
    select counter, system_identifier, timeline, opened_at, reason, database_user \
    from symphony.open_epoch($1, $2, $3)";

const OF_SERVER: &str = "select symphony.server_epoch()";

const SYNCHRONOUS_STANDBYS: &str = "select pg_catalog.current_setting('synchronous_standby_names')";

const IS_OF_THIS_SERVER: &str = "\
    select case when pg_catalog.pg_is_in_recovery() then true else coalesce(( \
      select e.system_identifier = (select s.system_identifier from pg_catalog.pg_control_system() s) \
         and e.timeline = ('x' || substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int \
      from symphony.epochs e \
      order by e.counter desc \
      limit 1), false) end";

/// A history of the data, and the server on which it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epoch {
    /// Its number. It rises, and may skip numbers.
    pub counter: i64,
    /// The database cluster. Text in JSON, because it has more than 53 bits.
    #[serde(serialize_with = "as_text")]
    pub system_identifier: i64,
    /// The timeline of its WAL: a promotion begins a new one.
    pub timeline: i32,
    /// When it was opened, by the clock of that server.
    pub opened_at: Timestamp,
    /// Why it was opened.
    pub reason: String,
    /// The login whose call opened it.
    pub database_user: String,
}

fn as_text<S: Serializer>(number: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// The epoch that a claim has opened, and the one before it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct OpenedEpoch {
    /// The new epoch.
    pub opened: Epoch,
    /// The one before; none if the database had none.
    pub previous: Option<Epoch>,
}

/// Reads the setting in which a claim reports the epoch in which it was made.
pub(crate) fn claim_epoch(setting: Option<&str>) -> Option<i64> {
    setting.and_then(|counter| counter.parse().ok())
}

/// Reads the setting in which a claim reports the epoch that it has opened.
pub(crate) fn opened_epoch(setting: Option<&str>) -> Option<OpenedEpoch> {
    setting.filter(|text| !text.is_empty()).and_then(|text| serde_json::from_str(text).ok())
}

/// At most `at_most` epochs, the newest first.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn newest_first(client: &impl GenericClient, at_most: u16) -> Result<Vec<Epoch>, DatabaseError> {
    let rows = client.query_typed(NEWEST_FIRST, &[(&i64::from(at_most), Type::INT8)]).await?;
    rows.iter().map(|row| Ok(from_row(row)?)).collect()
}

/// The current epoch.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn current(client: &impl GenericClient) -> Result<Option<Epoch>, DatabaseError> {
    Ok(newest_first(client, 1).await?.pop())
}

/// The epoch of the server, for a worker that has seen others; none on a standby. The login needs the role
/// `symphony_executor`.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn of_server(client: &impl Executor) -> Result<Option<i64>, DatabaseError> {
    Ok(client.fetch_one(OF_SERVER, &[]).await?.try_get(0)?)
}

/// Whether the server is set to wait for a synchronous standby. Without one, a failover may lose the last commits.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn waits_for_standby(client: &impl GenericClient) -> Result<bool, DatabaseError> {
    let row = client.query_typed_one(SYNCHRONOUS_STANDBYS, &[]).await?;
    Ok(!row.try_get::<_, &str>(0)?.trim().is_empty())
}

/// Whether the newest epoch is of this server. If not, the next claim opens another; until then, producers may be given
/// numbers that were given out before. A standby has no epoch of its own.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn is_of_this_server(client: &impl GenericClient) -> Result<bool, DatabaseError> {
    Ok(client.query_typed_one(IS_OF_THIS_SERVER, &[]).await?.try_get(0)?)
}

/// Opens a new epoch, for a loss of history that the server's identity does not show. With `at_least`, its counter is at
/// least that.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn open(
    client: &impl GenericClient,
    at_least: Option<i64>,
    audit: AuditContext<'_>,
) -> Result<Epoch, OperateError> {
    let row = client
        .query_typed_one(OPEN, &[(&audit.actor, Type::TEXT), (&audit.reason, Type::TEXT), (&at_least, Type::INT8)])
        .await?;
    Ok(from_row(&row)?)
}

fn from_row(row: &Row) -> Result<Epoch, tokio_postgres::Error> {
    Ok(Epoch {
        counter: row.try_get("counter")?,
        system_identifier: row.try_get("system_identifier")?,
        timeline: row.try_get("timeline")?,
        opened_at: row.try_get("opened_at")?,
        reason: row.try_get("reason")?,
        database_user: row.try_get("database_user")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_of_a_claim_names_both_epochs_and_junk_names_none() {
        let epoch = |counter: i64| {
            format!(
                r#"{{"counter": {counter}, "system_identifier": 7709945437191713040, "timeline": 2,
                    "opened_at": "2026-11-19T18:06:18.100585+01:00", "reason": "a test", "database_user": "app"}}"#
            )
        };
        let both = format!(r#"{{"opened": {}, "previous": {}}}"#, epoch(2), epoch(1));
        let found = opened_epoch(Some(&both)).unwrap();
        assert_eq!((found.opened.counter, found.previous.map(|epoch| epoch.counter)), (2, Some(1)));
        assert_eq!(serde_json::to_value(&found.opened).unwrap()["system_identifier"], "7709945437191713040");
        let first = format!(r#"{{"opened": {}, "previous": null}}"#, epoch(1));
        assert_eq!(opened_epoch(Some(&first)).unwrap().previous, None);
        for nothing in [None, Some(""), Some("junk"), Some("{}")] {
            assert_eq!(opened_epoch(nothing), None);
        }
    }
}
