//! The overview: backlog, recent results and dead letters of each lane, and the relayers.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use symphony_db::LaneStats;
use symphony_db::error::DatabaseError;
use symphony_db::event::reader::{self as events, EventBacklog};
use symphony_db::metadata::reader::{self as metadata, MetadataBacklog};
use symphony_db::payment::reader::{self as payments, Backlog, DeadLetterCount, RecentStats, WorkerLeases};
use symphony_db::relayers::{self, ConnectedRelayer};
use tokio_postgres::Client;

use crate::access::Scope;
use crate::endpoint::{Endpoint, NoParams};
use crate::problem::Problem;
use crate::{Console, ConsoleState};

/// The installed lanes and the relayers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Overview {
    /// The relayer that serves this API.
    pub(crate) worker: String,
    /// The payment lane; null if it is not installed.
    pub(crate) payments: Option<Payments>,
    /// The event lane; null if it is not installed.
    pub(crate) events: Option<Events>,
    /// The metadata lane; null if it is not installed.
    pub(crate) metadata: Option<Metadata>,
    /// The relayers that have a session, hold leases of payments, or recently recorded an attempt, by name.
    pub(crate) relayers: Vec<Relayer>,
}

/// The payment lane.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Payments {
    /// Pending payments.
    pub(crate) backlog: Backlog,
    /// Recent results.
    pub(crate) recent: RecentStats,
    /// The number of dead letters.
    pub(crate) dead_letters: DeadLetterCount,
    /// The number of orphaned outcomes since the last reconciliation of their rail.
    pub(crate) open_orphans: i64,
}

/// The event lane.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Events {
    /// Events that are not processed.
    pub(crate) backlog: EventBacklog,
    /// Recent results.
    pub(crate) recent: LaneStats,
}

/// The metadata lane.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Metadata {
    /// Entries that are not published.
    pub(crate) backlog: MetadataBacklog,
    /// Recent results.
    pub(crate) recent: LaneStats,
}

/// A relayer as the database shows it.
#[derive(Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Relayer {
    /// Its name. A long name may be shortened if only its sessions show it.
    pub(crate) worker_id: String,
    /// Its sessions in this database. 0: it has ended, or its URL sets another application_name.
    pub(crate) sessions: i64,
    /// Its leases of payments, expired ones included.
    pub(crate) leases: i64,
    /// Its expired leases.
    pub(crate) expired: i64,
    /// The recent attempts that it recorded.
    pub(crate) attempts: i64,
    /// When it recorded the latest attempt.
    pub(crate) last_completed_at: Option<Timestamp>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![Endpoint::get::<NoParams, Overview, _>(
        "/overview",
        Scope::Read,
        "Backlog, recent results and dead letters of each lane, and the relayers.",
        get_overview,
    )]
}

async fn get_overview(State(console): State<ConsoleState>) -> Result<Json<Overview>, Problem> {
    Ok(Json(overview(&console).await?))
}

/// Reads the overview from the database.
pub(crate) async fn overview(console: &Console) -> Result<Overview, Problem> {
    let read = async |client: &Client| {
        let payments = installed(payments_now(client).await)?;
        let leases = installed(payments::leases(client).await)?.unwrap_or_default();
        let connected = relayers::connected(client).await?;
        Ok(Overview {
            worker: console.worker.clone(),
            relayers: known(&connected, &leases, payments.as_ref().map(|lane| &lane.recent)),
            payments,
            events: installed(events_now(client).await)?,
            metadata: installed(metadata_now(client).await)?,
        })
    };
    console.database.read(read).await
}

/// The result of a lane; none if it is not installed.
fn installed<T>(result: Result<T, DatabaseError>) -> Result<Option<T>, DatabaseError> {
    match result {
        Ok(result) => Ok(Some(result)),
        Err(DatabaseError::NotInstalled(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn payments_now(client: &Client) -> Result<Payments, DatabaseError> {
    Ok(Payments {
        backlog: payments::backlog(client).await?,
        recent: payments::recent_stats(client).await?,
        dead_letters: payments::count_dead_letters(client, &payments::DeadLetterFilter::default()).await?,
        open_orphans: payments::open_orphans(client).await?,
    })
}

async fn events_now(client: &Client) -> Result<Events, DatabaseError> {
    Ok(Events { backlog: events::backlog(client).await?, recent: events::recent_stats(client).await? })
}

async fn metadata_now(client: &Client) -> Result<Metadata, DatabaseError> {
    Ok(Metadata { backlog: metadata::backlog(client).await?, recent: metadata::recent_stats(client).await? })
}

/// The relayers that have a session, hold a lease or recently recorded an attempt.
fn known(connected: &[ConnectedRelayer], leases: &[WorkerLeases], recent: Option<&RecentStats>) -> Vec<Relayer> {
    let mut all: BTreeMap<String, Relayer> = BTreeMap::new();
    let mut named = |name: &str, add: &mut dyn FnMut(&mut Relayer)| {
        let relayer = all.entry(name.to_owned()).or_default();
        name.clone_into(&mut relayer.worker_id);
        add(relayer);
    };
    for done in recent.into_iter().flat_map(|recent| &recent.workers) {
        named(&done.worker_id, &mut |one| {
            (one.attempts, one.last_completed_at) = (done.attempts, Some(done.last_completed_at));
        });
    }
    for held in leases {
        named(&held.worker_id, &mut |one| {
            (one.leases, one.expired) = (one.leases + held.leases, one.expired + held.expired);
        });
    }
    for ConnectedRelayer { worker_id, sessions } in connected {
        let mut seen = false;
        for one in all.values_mut().filter(|one| relayers::visible_name(&one.worker_id) == *worker_id) {
            (one.sessions, seen) = (*sessions, true);
        }
        if !seen {
            let one = Relayer { worker_id: worker_id.clone(), sessions: *sessions, ..Relayer::default() };
            all.insert(worker_id.clone(), one);
        }
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use symphony_db::payment::reader::WorkerLeases;

    use super::*;

    #[test]
    fn a_relayer_is_known_by_its_sessions_and_by_its_leases_as_one() {
        let long = format!("{}ö", "x".repeat(60));
        let connected = |name: &str| ConnectedRelayer { worker_id: relayers::visible_name(name), sessions: 3 };
        let held = |name: &str| WorkerLeases {
            worker_id: name.to_owned(),
            rail_type: "sepa".to_owned(),
            leases: 2,
            expired: 1,
            oldest_claimed_at: Timestamp::UNIX_EPOCH,
            first_expires_at: Timestamp::UNIX_EPOCH,
        };
        let all = known(&[connected("idle"), connected(&long)], &[held("gone"), held(&long), held(&long)], None);
        let seen: Vec<_> = all.iter().map(|one| (one.worker_id.as_str(), one.sessions, one.leases)).collect();
        assert_eq!(seen, [("gone", 0, 2), ("idle", 3, 0), (long.as_str(), 3, 4)]);
    }
}
