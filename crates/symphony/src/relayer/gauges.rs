//! What only the database knows: how much is pending, how old it is, how much is dead, and what time it is there. Asked when
//! somebody looks, and not more often than every few seconds, whoever looks.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use symphony_outbox::clock;
use symphony_outbox::connect::Target;
use symphony_outbox::error::Fault;
use symphony_outbox::payment::reading::RailStatus;
use symphony_outbox::schema::Lane;
use symphony_outbox::{event, metadata, payment};
use symphony_relay::lane::LaneError;
use symphony_relay::session_pool::SessionPool;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long an answer is good for.
const FRESH: Duration = Duration::from_secs(5);
/// How long a look may take: who scrapes does not wait for ever.
const PATIENCE: Duration = Duration::from_secs(3);

/// The gauges of the lanes that are served.
#[derive(Debug)]
pub(crate) struct Gauges {
    pool: SessionPool,
    lanes: Vec<Lane>,
    /// The rails that this process serves.
    rails: BTreeSet<String>,
    seen: Mutex<Option<(Instant, String)>>,
}

/// What is known of a rail, or of a lane without rails.
struct Row {
    labels: String,
    /// Whether it is a rail without a section in this process; none for a lane without rails.
    unserved: Option<bool>,
    pending: i64,
    due: i64,
    /// Of any row, scheduled or not.
    oldest: f64,
    oldest_due: f64,
    stuck: i64,
    /// None where nothing ever ends as dead.
    dead: Option<i64>,
    /// Of those the ones that may have been paid; none where nothing is.
    unknown: Option<i64>,
}

impl Gauges {
    pub(crate) fn new(target: Arc<Target>, lanes: Vec<Lane>, rails: BTreeSet<String>) -> Self {
        Self { pool: SessionPool::new(target), lanes, rails, seen: Mutex::new(None) }
    }

    /// In the text format of Prometheus; empty where the database does not say.
    pub(crate) async fn text(&self) -> String {
        let mut seen = self.seen.lock().await;
        if let Some((at, text)) = seen.as_ref()
            && at.elapsed() < FRESH
        {
            return text.clone();
        }
        let asked = async { Ok::<_, LaneError>((self.rows().await?, self.clock_offset().await?)) };
        let text = match timeout(PATIENCE, asked).await {
            Ok(Ok((rows, offset))) => written(&rows, offset),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the gauges of the database are missing");
                String::new()
            }
            Err(_) => String::new(),
        };
        *seen = Some((Instant::now(), text.clone()));
        text
    }

    async fn rows(&self) -> Result<Vec<Row>, LaneError> {
        let mut rows = Vec::new();
        for lane in &self.lanes {
            match lane {
                Lane::Payment => {
                    let status =
                        self.pool.call(async |session| payment::reading::status(session.client()).await).await?;
                    rows.extend(status.rails.iter().map(|rail| of_rail(rail, &self.rails)));
                }
                Lane::Event => {
                    let status =
                        self.pool.call(async |session| event::reading::status(session.client()).await).await?;
                    rows.push(of_events(&status));
                }
                Lane::Metadata => {
                    let totals =
                        self.pool.call(async |session| metadata::reading::totals(session.client()).await).await?;
                    rows.push(of_metadata(&totals));
                }
            }
        }
        Ok(rows)
    }

    /// By how many seconds the database's clock is ahead of this machine's, give or take half the way there and back.
    async fn clock_offset(&self) -> Result<f64, LaneError> {
        self.pool
            .call(async |session| {
                let began = Timestamp::now();
                let there = clock::now(session.client()).await?;
                let ended = Timestamp::now();
                let half_way = ended.duration_since(began).as_secs_f64() / 2.0;
                Ok::<_, Fault>(there.duration_since(began).as_secs_f64() - half_way)
            })
            .await
    }
}

fn of_rail(rail: &RailStatus, served: &BTreeSet<String>) -> Row {
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
    }
}

fn of_events(status: &event::reading::Status) -> Row {
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
    }
}

fn of_metadata(totals: &metadata::reading::Totals) -> Row {
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
    }
}

/// One gauge: its name, what it is, and what it is of a row.
type Gauge = (&'static str, &'static str, fn(&Row) -> Option<String>);

fn written(rows: &[Row], clock_offset: f64) -> String {
    let gauges: [Gauge; 8] = [
        ("outbox_pending_depth", "Rows that have not ended", |row| Some(row.pending.to_string())),
        ("outbox_due", "Rows that may be claimed now", |row| Some(row.due.to_string())),
        ("oldest_pending_age_seconds", "Age of the oldest row that has not ended, scheduled or not", |row| {
            Some(row.oldest.to_string())
        }),
        ("oldest_due_age_seconds", "How long the oldest due row has waited", |row| {
            Some(row.oldest_due.to_string())
        }),
        ("stuck_dispatching_count", "Rows whose lease expired", |row| Some(row.stuck.to_string())),
        ("dlq_depth", "Dead letters", |row| row.dead.map(|dead| dead.to_string())),
        ("dlq_unknown_depth", "Dead letters that may have been paid", |row| {
            row.unknown.map(|unknown| unknown.to_string())
        }),
        ("rail_unserved", "1 for a rail that this process has no section for", |row| {
            row.unserved.map(|unserved| u8::from(unserved).to_string())
        }),
    ];
    let name = "symphony_database_clock_offset_seconds";
    let help = "How far the clock of the database is ahead of this machine's";
    let mut text = format!("# HELP {name} {help}.\n# TYPE {name} gauge\n{name} {clock_offset}\n");
    for (name, help, value) in gauges {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP symphony_{name} {help}.\n# TYPE symphony_{name} gauge");
        for row in rows {
            if let Some(value) = value(row) {
                let _ = writeln!(text, "symphony_{name}{{{}}} {value}", row.labels);
            }
        }
    }
    text
}
