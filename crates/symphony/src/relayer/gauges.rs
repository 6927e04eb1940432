//! Gauges that are read from the database at scrape time: pending rows, their age, dead letters, partitions of the ledger
//! that are ahead, the longest wait for a lock, and the clock.
//!
//! Counts stop at 10,000 rows of a rail and kind, so a read takes the same time beside any backlog. Scrapes within a few
//! seconds share one read, so that many scrapers do not load the database.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use symphony_console::sanitize::plain;
use symphony_db::connect::{Session, Target};
use symphony_db::error::DatabaseError;
use symphony_db::payment::reader::RailStatus;
use symphony_db::schema::Lane;
use symphony_db::{clock, epoch, event, locks, metadata, payment, relayers};
use symphony_relay::lane::LaneError;
use symphony_relay::session_pool::SessionPool;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::lock_holders::LockHolders;

/// How long a read is reused.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// How long a read may take before the scrape continues without these gauges.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
/// Seconds after which a wait for a lock, and a lock on the policies of the rails, is logged.
const LONG_LOCK_WAIT: f64 = 10.0;
/// Seconds between two reads by which the database's clock may differ from this process's: more was a step.
const MAX_CLOCK_DRIFT: f64 = 1.0;

/// The gauges of the lanes that are served.
#[derive(Debug)]
pub(crate) struct Gauges {
    pool: SessionPool,
    worker: String,
    lanes: Vec<Lane>,
    /// The rails that this process serves.
    rails: BTreeSet<String>,
    cached: Mutex<Option<(Instant, String)>>,
    clock: Mutex<ClockSteps>,
    lock_holders: Mutex<LockHolders>,
}

/// The values of one rail, or of a lane without rails.
struct Row {
    labels: String,
    /// Whether this process has no section for the rail; none for a lane without rails.
    unserved: Option<bool>,
    /// Whether a new epoch holds the rail; none for a lane without rails.
    held: Option<bool>,
    /// Participants whose later payments a failure holds; none for a lane without rails.
    held_streams: Option<i64>,
    pending: i64,
    due: i64,
    /// Age of the oldest row, scheduled or not.
    oldest: f64,
    oldest_due: f64,
    stuck: i64,
    /// None for a lane without a dead-letter queue.
    dead: Option<i64>,
    /// Dead letters with an unknown outcome; none for a lane that pays nothing.
    unknown: Option<i64>,
    /// Whether the counts of pending rows stopped at their limit.
    is_capped: bool,
    /// Payments that await confirmation, and the age of the oldest acceptance; none for a lane that pays nothing.
    awaiting_confirmation: Option<(i64, f64)>,
}

/// The partitions of the ledger, and what it lacks.
struct Ledger {
    /// How many start in the future.
    partitions_ahead: i64,
    /// For how long the oldest has been past its retention.
    archive_due_seconds: f64,
    /// Orphaned outcomes that no reconciliation has followed.
    open_orphans: i64,
    /// Confirmations that were ever refused.
    refused_confirmations: i64,
}

/// What one read returned.
#[derive(Default)]
struct Sample {
    rows: Vec<Row>,
    /// All pending rows of each lane, exact or estimated.
    estimates: Vec<(&'static str, i64)>,
    /// The newest epoch.
    epoch: Option<i64>,
}

impl Gauges {
    pub(crate) fn new(target: Arc<Target>, worker: &str, lanes: Vec<Lane>, rails: BTreeSet<String>) -> Self {
        Self {
            pool: SessionPool::new(target),
            worker: worker.to_owned(),
            lanes,
            rails,
            cached: Mutex::default(),
            clock: Mutex::default(),
            lock_holders: Mutex::default(),
        }
    }

    /// The gauges in the text format of Prometheus; empty if the database does not answer.
    pub(crate) async fn text(&self) -> String {
        let mut cached = self.cached.lock().await;
        if let Some((at, text)) = cached.as_ref()
            && at.elapsed() < CACHE_TTL
        {
            return text.clone();
        }
        let read = async {
            let (sample, clock) = (self.sample().await?, self.clock().await?);
            let lock_wait = self.lock_wait().await?.max(self.rails_held().await?);
            let sessions = Sessions { lock_wait, share_name: self.shares_name().await? };
            Ok::<_, LaneError>((sample, clock, sessions, self.ledger().await?))
        };
        let text = match timeout(QUERY_TIMEOUT, read).await {
            Ok(Ok((sample, clock, sessions, ledger))) => render(&sample, clock, sessions, ledger),
            Ok(Err(error)) => {
                tracing::warn!(%error, "cannot read the database gauges; this scrape lacks them");
                String::new()
            }
            Err(_) => {
                let seconds = QUERY_TIMEOUT.as_secs();
                tracing::warn!(seconds, "the database gauges took too long; this scrape lacks them");
                String::new()
            }
        };
        *cached = Some((Instant::now(), text.clone()));
        text
    }

    async fn sample(&self) -> Result<Sample, LaneError> {
        let mut sample = Sample::default();
        for lane in &self.lanes {
            let estimate = match lane {
                Lane::Payment => {
                    let status =
                        self.pool.call(async |session| payment::reader::status(session.client()).await).await?;
                    sample.rows.extend(status.rails.iter().map(|rail| rail_row(rail, &self.rails)));
                    status.estimate
                }
                Lane::Event => {
                    let status =
                        self.pool.call(async |session| event::reader::status(session.client()).await).await?;
                    sample.rows.push(event_row(&status));
                    status.estimate
                }
                Lane::Metadata => {
                    let totals =
                        self.pool.call(async |session| metadata::reader::totals(session.client()).await).await?;
                    sample.rows.push(metadata_row(&totals));
                    totals.estimate
                }
            };
            sample.estimates.push((lane.name(), estimate));
        }
        let newest = self.pool.call(async |session| epoch::current(session.client()).await).await?;
        sample.epoch = newest.map(|epoch| epoch.counter);
        Ok(sample)
    }

    /// The partitions of the ledger that are ahead, for how long one has been due for its archive, and the open orphans; none
    /// without the payment lane.
    async fn ledger(&self) -> Result<Option<Ledger>, LaneError> {
        if !self.lanes.contains(&Lane::Payment) {
            return Ok(None);
        }
        let read = async |session: &Session| {
            Ok::<_, DatabaseError>(Ledger {
                partitions_ahead: payment::reader::partitions_ahead(session.client()).await?,
                archive_due_seconds: payment::reader::archive_due_age(session.client()).await?,
                open_orphans: payment::reader::open_orphans(session.client()).await?,
                refused_confirmations: payment::reader::refused_confirmations_total(session.client()).await?,
            })
        };
        self.pool.call(read).await.map(Some)
    }

    /// For how many seconds a session has waited for a lock on a table of ours. A long wait is logged with its sessions.
    async fn lock_wait(&self) -> Result<f64, LaneError> {
        let wait = self.pool.call(async |session| locks::longest_wait(session.client()).await).await?;
        let Some(wait) = wait else { return Ok(0.0) };
        if wait.seconds > LONG_LOCK_WAIT {
            tracing::warn!(
                event = "LOCK_WAIT",
                seconds = wait.seconds,
                table = wait.table_name,
                waiting_pid = wait.waiting_pid,
                waiting_application = plain(&wait.waiting_application),
                blocking_pid = wait.blocking_pid,
                blocking_application = plain(&wait.blocking_application),
                "a session waits for a lock that another holds"
            );
        }
        Ok(wait.seconds)
    }

    /// For how many seconds a transaction has held the policies of the rails, as far as this process knows. A long one is
    /// logged with its session.
    async fn rails_held(&self) -> Result<f64, LaneError> {
        if !self.lanes.contains(&Lane::Payment) {
            return Ok(0.0);
        }
        let holders = self.pool.call(async |session| locks::rail_policy_holders(session.client()).await).await?;
        let held = self.lock_holders.lock().await.seen(holders, Instant::now());
        let Some((holder, held)) = held else { return Ok(0.0) };
        let seconds = held.as_secs_f64();
        if seconds > LONG_LOCK_WAIT {
            tracing::warn!(
                event = "LOCK_WAIT",
                seconds,
                table = "symphony.payment_rails",
                blocking_pid = holder.pid,
                blocking_application = plain(&holder.application),
                "a transaction is left open that keeps rails from being changed and an epoch from being opened"
            );
        }
        Ok(seconds)
    }

    /// Whether another relayer has this one's name.
    async fn shares_name(&self) -> Result<bool, LaneError> {
        let count = async |session: &Session| relayers::listeners_of(session.client(), &self.worker).await;
        let listeners = self.pool.call(count).await?;
        if listeners > 1 {
            let worker = plain(&self.worker);
            tracing::warn!(
                event = "DUPLICATE_WORKER",
                worker,
                listeners,
                "several relayers have this worker name"
            );
        }
        Ok(listeners > 1)
    }

    /// The database's clock, accurate to half a round trip.
    async fn clock(&self) -> Result<Clock, LaneError> {
        let read = async |session: &Session| {
            let (began, began_at) = (Timestamp::now(), Instant::now());
            let database_time = clock::now(session.client()).await?;
            let half_round_trip = began_at.elapsed().as_secs_f64() / 2.0;
            let offset = database_time.duration_since(began).as_secs_f64() - half_round_trip;
            Ok::<_, DatabaseError>((offset, database_time, began_at))
        };
        let (offset, database_time, at) = self.pool.call(read).await?;
        Ok(Clock { offset, steps: self.clock.lock().await.seen(database_time, at) })
    }
}

/// What the sessions of the database show.
#[derive(Clone, Copy)]
struct Sessions {
    /// For how many seconds one has waited for a lock on a table of ours, or held the policies of the rails.
    lock_wait: f64,
    /// Whether another relayer has this one's name.
    share_name: bool,
}

/// The database's clock.
#[derive(Clone, Copy)]
struct Clock {
    /// Seconds by which it is ahead of this machine's.
    offset: f64,
    /// How often it was set.
    steps: u64,
}

/// Counts how often the database's clock was set, by comparing it with this process's monotonic clock.
#[derive(Debug, Default)]
struct ClockSteps {
    last: Option<(Timestamp, Instant)>,
    steps: u64,
}

impl ClockSteps {
    /// The database's time at this moment; returns the steps so far.
    fn seen(&mut self, database_time: Timestamp, at: Instant) -> u64 {
        if let Some((last_time, last_at)) = self.last.replace((database_time, at)) {
            let passed = at.saturating_duration_since(last_at).as_secs_f64();
            let seconds = database_time.duration_since(last_time).as_secs_f64() - passed;
            if seconds.abs() > MAX_CLOCK_DRIFT {
                self.steps += 1;
                tracing::warn!(event = "CLOCK_STEPPED", seconds, "the clock of the database was set");
            }
        }
        self.steps
    }
}

fn rail_row(rail: &RailStatus, served: &BTreeSet<String>) -> Row {
    let unserved = !served.contains(&rail.rail_type);
    let name = rail.rail_type.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    Row {
        labels: format!("lane=\"payment\",rail=\"{name}\""),
        unserved: Some(unserved),
        held: Some(rail.held_since_epoch.is_some()),
        held_streams: Some(rail.held_streams),
        pending: rail.due_unleased_count + rail.leased_count + rail.expired_lease_count + rail.scheduled_count,
        due: rail.due_unleased_count,
        oldest: rail.oldest_pending_age_seconds,
        oldest_due: rail.oldest_due_age_seconds,
        stuck: rail.expired_lease_count,
        dead: Some(rail.dlq),
        unknown: Some(rail.dlq_unknown),
        is_capped: rail.more_due || rail.more_scheduled,
        awaiting_confirmation: Some((
            rail.awaiting_confirmation_count,
            rail.oldest_awaiting_confirmation_age_seconds,
        )),
    }
}

fn event_row(status: &event::reader::Status) -> Row {
    Row {
        labels: "lane=\"event\"".to_owned(),
        unserved: None,
        held: None,
        held_streams: None,
        pending: status.due + status.claimed + status.stuck + status.scheduled,
        due: status.due,
        oldest: status.oldest_pending_age_seconds,
        oldest_due: status.oldest_due_age_seconds,
        stuck: status.stuck,
        dead: None,
        unknown: None,
        is_capped: status.is_capped(),
        awaiting_confirmation: None,
    }
}

fn metadata_row(totals: &metadata::reader::Totals) -> Row {
    Row {
        labels: "lane=\"metadata\"".to_owned(),
        unserved: None,
        held: None,
        held_streams: None,
        pending: totals.due + totals.processing + totals.stuck + totals.scheduled,
        due: totals.due,
        oldest: totals.oldest_pending_age_seconds,
        oldest_due: totals.oldest_due_age_seconds,
        stuck: totals.stuck,
        dead: Some(totals.dlq),
        unknown: None,
        is_capped: totals.is_capped(),
        awaiting_confirmation: None,
    }
}

/// One gauge: its name, its help text, and its value in a row.
type Gauge = (&'static str, &'static str, fn(&Row) -> Option<String>);

fn render(sample: &Sample, clock: Clock, sessions: Sessions, ledger: Option<Ledger>) -> String {
    let gauges: [Gauge; 13] = [
        ("outbox_pending_depth", "Pending rows; counting stops at 10000 of each kind", |row| {
            Some(row.pending.to_string())
        }),
        (
            "outbox_due",
            "Due rows without a lease, those of paused rails and parked rows included; counting stops at 10000 of each kind",
            |row| Some(row.due.to_string()),
        ),
        (
            "outbox_count_capped",
            "1 if counting stopped at its limit: the counts of pending, due and stuck rows are lower bounds",
            |row| Some(u8::from(row.is_capped).to_string()),
        ),
        ("oldest_pending_age_seconds", "Age of the oldest pending row, scheduled or not", |row| {
            Some(row.oldest.to_string())
        }),
        ("oldest_due_age_seconds", "How long the oldest due row has waited", |row| {
            Some(row.oldest_due.to_string())
        }),
        ("stuck_dispatching_count", "Rows whose lease has expired, among the counted rows", |row| {
            Some(row.stuck.to_string())
        }),
        ("dlq_depth", "Dead letters", |row| row.dead.map(|dead| dead.to_string())),
        ("dlq_unknown_depth", "Dead letters with an unknown outcome: they may have been paid", |row| {
            row.unknown.map(|unknown| unknown.to_string())
        }),
        (
            "payments_awaiting_confirmation",
            "Payments that the rail has accepted and not confirmed yet; counting stops at 10000",
            |row| row.awaiting_confirmation.map(|(count, _)| count.to_string()),
        ),
        (
            "oldest_awaiting_confirmation_age_seconds",
            "How long ago the first of the payments that await confirmation was accepted",
            |row| row.awaiting_confirmation.map(|(_, age)| age.to_string()),
        ),
        ("rail_unserved", "1 for a registered rail without a section in this process's settings", |row| {
            row.unserved.map(|unserved| u8::from(unserved).to_string())
        }),
        ("rail_held", "1 for a rail that a new epoch holds: an operator must release it", |row| {
            row.held.map(|held| u8::from(held).to_string())
        }),
        (
            "rail_held_streams",
            "Participants whose later payments wait until an operator has handled a failure",
            |row| row.held_streams.map(|held| held.to_string()),
        ),
    ];
    let name = "symphony_database_clock_offset_seconds";
    let help = "Seconds by which the database's clock is ahead of this machine's";
    let Clock { offset, steps } = clock;
    let mut text = format!("# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {offset}\n");
    let name = "symphony_database_clock_steps";
    let help = "How often the database's clock was set by more than a second, as seen by this relayer";
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} counter\n{name}_total {steps}");
    let name = "symphony_lock_wait_seconds";
    let help =
        "For how long a session has waited for a lock on a table of Symphony, or held the policies of the rails";
    let Sessions { lock_wait, share_name } = sessions;
    let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {lock_wait}");
    let name = "symphony_worker_name_shared";
    let help = "1 if another relayer listens under this relayer's worker name";
    let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {}", u8::from(share_name));
    let name = "symphony_outbox_pending_estimate";
    let help = "All pending rows of the lane: exact, or PostgreSQL's estimate if counting stopped at its limit";
    let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} gauge");
    for (lane, estimate) in &sample.estimates {
        let _ = writeln!(text, "{name}{{lane=\"{lane}\"}} {estimate}");
    }
    if let Some(epoch) = sample.epoch {
        let name = "symphony_epoch";
        let help = "The newest epoch: it rises when the database was promoted, restored or replaced";
        let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {epoch}");
    }
    if let Some(ledger) = ledger {
        let Ledger { partitions_ahead: ahead, archive_due_seconds, open_orphans, refused_confirmations } = ledger;
        let name = "symphony_refused_confirmations";
        let help = "Confirmations of rails that contradict the ledger or fit no payment";
        let _ =
            writeln!(text, "# HELP {name} {help}.\n# TYPE {name} counter\n{name}_total {refused_confirmations}");
        let name = "symphony_payment_orphans";
        let help = "Outcomes of payments whose history the database has lost, since the last reconciliation of their rail";
        let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {open_orphans}");
        let name = "symphony_ledger_archive_due_seconds";
        let help = "For how long the oldest partition of the ledger has been past its retention; 0 if none is";
        let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {archive_due_seconds}");
        let name = "symphony_ledger_partitions_ahead";
        let _ = writeln!(text, "# HELP {name} Partitions of the ledger that start in the future.");
        let _ = writeln!(text, "# TYPE {name} gauge\n{name} {ahead}");
    }
    for (name, help, value) in gauges {
        let _ = writeln!(text, "# HELP symphony_{name} {help}.\n# TYPE symphony_{name} gauge");
        for row in &sample.rows {
            if let Some(value) = value(row) {
                let _ = writeln!(text, "symphony_{name}{{{}}} {value}", row.labels);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn a_clock_that_is_set_either_way_is_one_step_and_one_that_runs_is_none() {
        let (mut clock, start, at) = (ClockSteps::default(), Timestamp::now(), Instant::now());
        let mut seen = |database_seconds: i64, seconds: u64| {
            clock.seen(start + SignedDuration::from_secs(database_seconds), at + Duration::from_secs(seconds))
        };
        assert_eq!([seen(0, 0), seen(5, 5), seen(3610, 10), seen(3615, 15), seen(20, 20)], [0, 0, 1, 1, 2]);
    }
}
