//! A relayer in your own process: the lanes that you name, checked at the start, until you stop it.
//!
//! [`Relayer::builder`] takes the database and your rails, sinks and stores. [`RelayerBuilder::start`] refuses what
//! `symphony run` refuses: a schema that differs from this build, objects of another owner in Symphony's place, a login
//! without its role, a rail that is not registered. The engines do the rest by themselves, here as there: they repair
//! expired leases, add partitions to the ledger ahead of time, notice new epochs and lost commits, and remove what is past
//! its retention.
//!
//! Without a [`History`](crate::payment::History) that you save, a restart forgets the last acknowledged commits, as
//! `symphony run` does without a state file.

mod builder;
pub mod checks;

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;

use symphony_db::WorkerId;
use symphony_db::connect::{self, Target};
use symphony_db::listener::Channel;
use symphony_db::schema::Lane;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use crate::listener::PostgresListener;
use crate::settings::OutOfRange;
use crate::stop::{StopHandle, StopSignal};
use crate::{Engine, Summary, lane};
use builder::Destination;
pub use builder::RelayerBuilder;

/// How long a sink or a store may take to close its connections.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(2);

/// Why a relayer did not start. Nothing was claimed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Add a rail, or a sink with a route, or a store with a route.
    #[error("nothing to serve: the relayer has no rail, and no route for events or metadata")]
    NothingToServe,
    /// A route names a sink or a store that was not added.
    #[error("a route names {0:?}, which was not added")]
    UnknownDestination(String),
    /// Every event carries its source: call `event_source`.
    #[error("events need a source, such as \"//orders.example\"")]
    NoEventSource,
    /// A setting is out of its range.
    #[error("{lane}: {source}")]
    Setting {
        /// The lane.
        lane: &'static str,
        /// The setting.
        source: OutOfRange,
    },
    /// The address is invalid, or the connection failed.
    #[error("cannot connect to the database")]
    Connect(#[from] connect::Error),
    /// A startup check has failed.
    #[error(transparent)]
    Check(#[from] checks::CheckError),
}

/// What a lane did until it was stopped.
#[derive(Clone, Copy, Debug)]
pub struct LaneSummary {
    /// The lane.
    pub lane: Lane,
    /// Its counters.
    pub summary: Summary,
}

/// A running relayer. Dropping it stops it at once: its leases expire, and another relayer claims their rows.
#[derive(Debug)]
pub struct Relayer {
    worker: WorkerId,
    stop: StopHandle,
    lanes: JoinSet<LaneSummary>,
}

impl Relayer {
    /// A relayer on the database at this URL, with a login that has the role `symphony_executor`.
    pub fn builder(database: impl Into<String>) -> RelayerBuilder {
        RelayerBuilder::new(database.into())
    }

    /// Its name in leases, in the ledger and in sessions.
    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// Stops the relayer from elsewhere: gracefully at the first request, at once at the second.
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// Requests a stop: running dispatches finish, nothing further is claimed. Then await [`Relayer::ended`].
    pub fn request_stop(&self) {
        self.stop.request_stop();
    }

    /// Waits until every lane has ended, which they do after a stop request.
    ///
    /// # Panics
    ///
    /// If an engine has panicked, with its panic.
    pub async fn ended(mut self) -> Vec<LaneSummary> {
        self.join().await
    }

    /// Runs until SIGTERM or SIGINT: the first one stops gracefully, a second one at once.
    ///
    /// # Errors
    ///
    /// If the process cannot listen for signals. The relayer then stops at once.
    ///
    /// # Panics
    ///
    /// If an engine has panicked, with its panic.
    pub async fn until_signal(mut self) -> io::Result<Vec<LaneSummary>> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stop = self.stop.clone();
        let mut lanes = std::pin::pin!(self.join());
        loop {
            tokio::select! {
                ended = &mut lanes => return Ok(ended),
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping: running dispatches may finish; a second signal stops at once");
            stop.request_stop();
        }
    }

    async fn join(&mut self) -> Vec<LaneSummary> {
        let mut summaries = Vec::new();
        while let Some(ended) = self.lanes.join_next().await {
            match ended.map_err(JoinError::try_into_panic) {
                Ok(summary) => summaries.push(summary),
                Err(Ok(panic)) => resume_unwind(panic),
                // The runtime is shutting down, and the caller with it.
                Err(Err(_)) => {}
            }
        }
        summaries
    }
}

/// Runs a lane to its end, and closes what it sent to.
async fn run_lane<L: lane::Lane>(
    engine: Engine<L>,
    lane: Lane,
    listen_target: Arc<Target>,
    destinations: Vec<Destination>,
    stop: StopSignal,
) -> LaneSummary {
    let channel = match lane {
        Lane::Payment => Channel::PAYMENT,
        Lane::Event => Channel::EVENT,
        Lane::Metadata => Channel::METADATA,
    };
    let summary = engine.run(Some(PostgresListener::new(listen_target, channel)), stop).await;
    for destination in destinations {
        // One that hangs must not keep the process from ending.
        let _ = timeout(CLOSE_TIMEOUT, destination.close()).await;
    }
    LaneSummary { lane, summary }
}
