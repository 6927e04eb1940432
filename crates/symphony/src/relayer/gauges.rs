//! Gauges that are read from the database at scrape time: pending rows, their age, dead letters, partitions of the ledger
//! that are ahead, and the clock offset.
//!
//! Counts stop at 10,000 rows of a rail and kind, so a read takes the same time beside any backlog. Scrapes within a few
//! seconds share one read, so that many scrapers do not load the database.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use symphony_db::connect::Target;
use symphony_db::error::DatabaseError;
use symphony_db::payment::reader::RailStatus;
use symphony_db::schema::Lane;
use symphony_db::{clock, event, metadata, payment};
use symphony_relay::lane::LaneError;
use symphony_relay::session_pool::SessionPool;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a read is reused.
const CACHE_TTL: Duration = Duration::from_secs(5);
/// How long a read may take before the scrape continues without these gauges.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3);

/// The gauges of the lanes that are served.
#[derive(Debug)]
pub(crate) struct Gauges {
    pool: SessionPool,
    lanes: Vec<Lane>,
    /// The rails that this process serves.
    rails: BTreeSet<String>,
    cached: Mutex<Option<(Instant, String)>>,
}

/// The values of one rail, or of a lane without rails.
struct Row {
    labels: String,
    /// Whether this process has no section for the rail; none for a lane without rails.
    unserved: Option<bool>,
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
}

/// What one read returned.
#[derive(Default)]
struct Sample {
    rows: Vec<Row>,
    /// All pending rows of each lane, exact or estimated.
    estimates: Vec<(&'static str, i64)>,
}

impl Gauges {
    pub(crate) fn new(target: Arc<Target>, lanes: Vec<Lane>, rails: BTreeSet<String>) -> Self {
        Self { pool: SessionPool::new(target), lanes, rails, cached: Mutex::new(None) }
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
            Ok::<_, LaneError>((self.sample().await?, self.clock_offset().await?, self.partitions_ahead().await?))
        };
        let text = match timeout(QUERY_TIMEOUT, read).await {
            Ok(Ok((sample, offset, ahead))) => render(&sample, offset, ahead),
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
        Ok(sample)
    }

    /// How many partitions of the ledger start in the future; none without the payment lane.
    async fn partitions_ahead(&self) -> Result<Option<i64>, LaneError> {
        if !self.lanes.contains(&Lane::Payment) {
            return Ok(None);
        }
        self.pool.call(async |session| payment::reader::partitions_ahead(session.client()).await).await.map(Some)
    }

    /// Seconds by which the database's clock is ahead of this machine's, accurate to half a round trip.
    async fn clock_offset(&self) -> Result<f64, LaneError> {
        self.pool
            .call(async |session| {
                let began = Timestamp::now();
                let database_time = clock::now(session.client()).await?;
                let ended = Timestamp::now();
                let half_round_trip = ended.duration_since(began).as_secs_f64() / 2.0;
                Ok::<_, DatabaseError>(database_time.duration_since(began).as_secs_f64() - half_round_trip)
            })
            .await
    }
}

fn rail_row(rail: &RailStatus, served: &BTreeSet<String>) -> Row {
    let unserved = !served.contains(&rail.rail_type);
    let name = rail.rail_type.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    Row {
        labels: format!("lane=\"payment\",rail=\"{name}\""),
        unserved: Some(unserved),
        pending: rail.due_unleased_count + rail.leased_count + rail.expired_lease_count + rail.scheduled_count,
        due: rail.due_unleased_count,
        oldest: rail.oldest_pending_age_seconds,
        oldest_due: rail.oldest_due_age_seconds,
        stuck: rail.expired_lease_count,
        dead: Some(rail.dlq),
        unknown: Some(rail.dlq_unknown),
        is_capped: rail.more_due || rail.more_scheduled,
    }
}

fn event_row(status: &event::reader::Status) -> Row {
    Row {
        labels: "lane=\"event\"".to_owned(),
        unserved: None,
        pending: status.due + status.claimed + status.stuck + status.scheduled,
        due: status.due,
        oldest: status.oldest_pending_age_seconds,
        oldest_due: status.oldest_due_age_seconds,
        stuck: status.stuck,
        dead: None,
        unknown: None,
        is_capped: status.is_capped(),
    }
}

fn metadata_row(totals: &metadata::reader::Totals) -> Row {
    Row {
        labels: "lane=\"metadata\"".to_owned(),
        unserved: None,
        pending: totals.due + totals.processing + totals.stuck + totals.scheduled,
        due: totals.due,
        oldest: totals.oldest_pending_age_seconds,
        oldest_due: totals.oldest_due_age_seconds,
        stuck: totals.stuck,
        dead: Some(totals.dlq),
        unknown: None,
        is_capped: totals.is_capped(),
    }
}

/// One gauge: its name, its help text, and its value in a row.
type Gauge = (&'static str, &'static str, fn(&Row) -> Option<String>);

fn render(sample: &Sample, clock_offset: f64, partitions_ahead: Option<i64>) -> String {
    let gauges: [Gauge; 9] = [
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
        ("rail_unserved", "1 for a registered rail without a section in this process's settings", |row| {
            row.unserved.map(|unserved| u8::from(unserved).to_string())
        }),
    ];
    let name = "symphony_database_clock_offset_seconds";
    let help = "Seconds by which the database's clock is ahead of this machine's";
    let mut text = format!("# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {clock_offset}\n");
    let name = "symphony_outbox_pending_estimate";
    let help = "All pending rows of the lane: exact, or PostgreSQL's estimate if counting stopped at its limit";
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} gauge");
    for (lane, estimate) in &sample.estimates {
        let _ = writeln!(text, "{name}{{lane=\"{lane}\"}} {estimate}");
    }
    if let Some(ahead) = partitions_ahead {
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
