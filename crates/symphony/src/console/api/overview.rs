//! Everything at a glance. docs/console.md says how each number is got.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use symphony_outbox::LanePulse;
use symphony_outbox::error::Fault;
use symphony_outbox::event::reading::{self as events, EventBacklog};
use symphony_outbox::metadata::reading::{self as metadata, MetadataBacklog};
use symphony_outbox::payment::reading::{self as payments, Backlog, DeadLetterCount, Pulse, WorkerLeases};
use symphony_outbox::relayers::{self, Connected};
use tokio_postgres::Client;

use crate::console::access::Scope;
use crate::console::endpoint::{Endpoint, Nothing};
use crate::console::problem::Problem;
use crate::console::{Console, Desk};

/// What there is to see: the lanes that are installed, and who works for them.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Overview {
    /// The relayer that answers.
    pub(crate) worker: String,
    /// The payment lane.
    pub(crate) payments: Option<Payments>,
    /// The event lane.
    pub(crate) events: Option<Events>,
    /// The metadata lane.
    pub(crate) metadata: Option<Metadata>,
    /// The relayers that have a session now, hold leases of payments, or recorded an attempt lately, by name.
    pub(crate) relayers: Vec<Relayer>,
}

/// The payment lane.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Payments {
    /// What is pending.
    pub(crate) backlog: Backlog,
    /// What was done lately.
    pub(crate) pulse: Pulse,
    /// What waits for a person.
    pub(crate) dead_letters: DeadLetterCount,
}

/// The event lane.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Events {
    /// What is not processed.
    pub(crate) backlog: EventBacklog,
    /// What was done lately.
    pub(crate) pulse: LanePulse,
}

/// The metadata lane.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Metadata {
    /// What is not published.
    pub(crate) backlog: MetadataBacklog,
    /// What was done lately.
    pub(crate) pulse: LanePulse,
}

/// A relayer, as the database knows it.
#[derive(Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Relayer {
    /// Its name; of one that is only known by its sessions, as much as those show.
    pub(crate) worker_id: String,
    /// Its sessions in this database now. None: it has gone, or its address gives its sessions a name of their own.
    pub(crate) sessions: i64,
    /// Payments that it holds, those whose lease ran out included.
    pub(crate) leases: i64,
    /// How many of those leases ran out.
    pub(crate) expired: i64,
    /// Attempts that it recorded lately.
    pub(crate) attempts: i64,
    /// When it recorded the last of them.
    pub(crate) last_completed_at: Option<Timestamp>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![Endpoint::get::<Nothing, Overview, _>("/overview", Scope::Read, "Everything at a glance.", answer)]
}

async fn answer(State(desk): State<Desk>) -> Result<Json<Overview>, Problem> {
    Ok(Json(overview(&desk).await?))
}

/// Read now.
pub(crate) async fn overview(desk: &Console) -> Result<Overview, Problem> {
    let read = async |client: &Client| {
        let payments = installed(payments_now(client).await)?;
        let leases = installed(payments::leases(client).await)?.unwrap_or_default();
        let connected = relayers::connected(client).await?;
        Ok(Overview {
            worker: desk.worker.clone(),
            relayers: known(&connected, &leases, payments.as_ref().map(|lane| &lane.pulse)),
            payments,
            events: installed(events_now(client).await)?,
            metadata: installed(metadata_now(client).await)?,
        })
    };
    desk.database.read(read).await
}

/// What a lane said; nothing where it is not installed.
fn installed<T>(answer: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match answer {
        Ok(seen) => Ok(Some(seen)),
        Err(Fault::NotInstalled(_)) => Ok(None),
        Err(fault) => Err(fault),
    }
}

async fn payments_now(client: &Client) -> Result<Payments, Fault> {
    Ok(Payments {
        backlog: payments::backlog(client).await?,
        pulse: payments::pulse(client).await?,
        dead_letters: payments::count_dead_letters(client, None, None).await?,
    })
}

async fn events_now(client: &Client) -> Result<Events, Fault> {
    Ok(Events { backlog: events::backlog(client).await?, pulse: events::pulse(client).await? })
}

async fn metadata_now(client: &Client) -> Result<Metadata, Fault> {
    Ok(Metadata { backlog: metadata::backlog(client).await?, pulse: metadata::pulse(client).await? })
}

/// Whoever has a session, holds a lease or has recorded something lately.
fn known(connected: &[Connected], leases: &[WorkerLeases], pulse: Option<&Pulse>) -> Vec<Relayer> {
    let mut all: BTreeMap<String, Relayer> = BTreeMap::new();
    let mut named = |name: &str, add: &mut dyn FnMut(&mut Relayer)| {
        let relayer = all.entry(name.to_owned()).or_default();
        name.clone_into(&mut relayer.worker_id);
        add(relayer);
    };
    for done in pulse.into_iter().flat_map(|pulse| &pulse.workers) {
        named(&done.worker_id, &mut |one| {
            (one.attempts, one.last_completed_at) = (done.attempts, Some(done.last_completed_at));
        });
    }
    for held in leases {
        named(&held.worker_id, &mut |one| {
            (one.leases, one.expired) = (one.leases + held.leases, one.expired + held.expired);
        });
    }
    for Connected { worker_id, sessions } in connected {
        let mut seen = false;
        for one in all.values_mut().filter(|one| relayers::shown(&one.worker_id) == *worker_id) {
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
    use symphony_outbox::payment::reading::WorkerLeases;

    use super::*;

    #[test]
    fn a_relayer_is_known_by_its_sessions_and_by_its_leases_as_one() {
        let long = format!("{}ö", "x".repeat(60));
        let connected = |name: &str| Connected { worker_id: relayers::shown(name), sessions: 3 };
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
