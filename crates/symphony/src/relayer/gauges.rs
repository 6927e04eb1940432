//! What only the database knows: how much is pending, how old it is, how much is dead. Asked when somebody looks, and
//! not more often than every few seconds, whoever looks.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_outbox::connect::Target;
use symphony_outbox::payment::reading::{self, RailStatus};
use symphony_relay::line::Line;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long an answer is good for.
const FRESH: Duration = Duration::from_secs(5);
/// How long a look may take: who scrapes does not wait for ever.
const PATIENCE: Duration = Duration::from_secs(3);

/// The gauges of the payment lane.
#[derive(Debug)]
pub(crate) struct Gauges {
    line: Line,
    seen: Mutex<Option<(Instant, String)>>,
}

impl Gauges {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        Self { line: Line::new(target), seen: Mutex::new(None) }
    }

    /// In the text format of Prometheus; empty where the database does not say.
    pub(crate) async fn text(&self) -> String {
        let mut seen = self.seen.lock().await;
        if let Some((at, text)) = seen.as_ref()
            && at.elapsed() < FRESH
        {
            return text.clone();
        }
        let asked = self.line.call(async |client| reading::status(client).await);
        let text = match timeout(PATIENCE, asked).await {
            Ok(Ok(status)) => written(&status.rails),
            Ok(Err(trouble)) => {
                tracing::warn!(%trouble, "the gauges of the database are missing");
                String::new()
            }
            Err(_) => String::new(),
        };
        *seen = Some((Instant::now(), text.clone()));
        text
    }
}

/// One gauge: its name, what it is, and what it is of a rail.
type OfRail = (&'static str, &'static str, fn(&RailStatus) -> String);

fn written(rails: &[RailStatus]) -> String {
    let gauges: [OfRail; 6] = [
        ("outbox_pending_depth", "Rows that have not ended", |rail| {
            (rail.due + rail.leased + rail.expired + rail.scheduled).to_string()
        }),
        ("outbox_due", "Rows that may be claimed now", |rail| rail.due.to_string()),
        ("oldest_pending_age_seconds", "How long the oldest due row has waited", |rail| {
            rail.oldest_due_age_seconds.to_string()
        }),
        ("stuck_dispatching_count", "Rows whose lease expired", |rail| rail.expired.to_string()),
        ("dlq_depth", "Dead letters", |rail| rail.dlq.to_string()),
        ("dlq_unknown_depth", "Dead letters that may have been paid", |rail| rail.dlq_unknown.to_string()),
    ];
    let mut text = String::new();
    for (name, help, value) in gauges {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP symphony_{name} {help}.\n# TYPE symphony_{name} gauge");
        for rail in rails {
            let label = rail.rail_type.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = writeln!(text, "symphony_{name}{{lane=\"payment\",rail=\"{label}\"}} {}", value(rail));
        }
    }
    text
}
