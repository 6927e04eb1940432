//! `symphony maintain`: adds partitions to the ledger ahead of time, and lists them.

use serde::Serialize;
use symphony_db::error::ClaimError;
use symphony_db::payment::reader::{LedgerPartition, ledger_partitions};
use symphony_db::payment::worker::extend_ledger;
use symphony_db::retention;
use symphony_db::schema::{Lane, install::installed_lanes};
use tokio_postgres::Client;

use super::with_examples;
use crate::{
    database::Database,
    eprint_redacted,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    progress,
    table::Table,
};

/// Add partitions to the payment ledger ahead of time, index closed ones, and remove what is past its retention
///
/// Removes idempotency keys, events and metadata past their retention; by default there is none (symphony retention). The
/// ledger is left to symphony archive. Relayers add partitions in their repair pass. They index only small partitions; run this once a week, so that searches
/// by participant have an index in the large ones. Exit code 1 if fewer than two partitions are ahead. Needs a login with
/// the role symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony maintain\n  symphony maintain --max-scan-mb 100000 --json"))]
pub(crate) struct Arguments {
    /// Leave out what must read more than this of one partition
    #[arg(long, value_name = "MB", default_value_t = 512, value_parser = clap::value_parser!(i32).range(0..=1_000_000))]
    max_scan_mb: i32,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Serialize)]
struct Report {
    created: Vec<String>,
    indexed: Vec<String>,
    partitions_ahead: i32,
    skipped: Option<String>,
    removed: Removed,
    partitions: Vec<LedgerPartition>,
}

/// What was past its retention, in rows.
#[derive(Default, Serialize)]
struct Removed {
    payment_keys: i64,
    events: i64,
    metadata: i64,
}

/// The rows of one batch, so that its locks are short.
const MAX_REMOVED_PER_CALL: i32 = 5_000;

impl Removed {
    async fn remove(client: &Client) -> Result<Self, Failure> {
        let lanes = installed_lanes(client).await?;
        let mut removed = Self::default();
        if lanes.contains(&Lane::Payment) {
            // A sweep begins where the last call stopped: it is complete at the second end of the registry.
            let mut ends = 0;
            while ends < 2 {
                let (keys, is_end) = retention::remove_expired_keys(client, MAX_REMOVED_PER_CALL).await?;
                removed.payment_keys += keys;
                ends += u8::from(is_end);
                progress::show(&format!("{} keys removed", removed.payment_keys));
            }
        }
        if lanes.contains(&Lane::Event) {
            removed.events =
                until_none(async || retention::remove_processed_events(client, MAX_REMOVED_PER_CALL).await)
                    .await?;
        }
        if lanes.contains(&Lane::Metadata) {
            removed.metadata =
                until_none(async || retention::remove_ended_metadata(client, MAX_REMOVED_PER_CALL).await).await?;
        }
        progress::clear();
        Ok(removed)
    }
}

/// Calls until a call removes nothing.
async fn until_none(remove: impl AsyncFn() -> Result<i64, ClaimError>) -> Result<i64, Failure> {
    let mut all = 0;
    loop {
        let removed = remove().await?;
        if removed == 0 {
            return Ok(all);
        }
        all += removed;
        progress::show(&format!("{all} rows removed"));
    }
}

/// With fewer partitions ahead, the ledger soon grows in its last one.
const MIN_AHEAD: i32 = 2;

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let client = database.connect().await?;
        let (mut created, mut indexed) = (Vec::new(), Vec::new());
        // Each call adds partitions or indexes one, so that its lock is short.
        let last = loop {
            let call = extend_ledger(&client, self.max_scan_mb).await?;
            let is_last = call.created.is_empty() && call.indexed.is_empty();
            created.extend(call.created.iter().cloned());
            indexed.extend(call.indexed.iter().cloned());
            if is_last {
                break call;
            }
            progress::show(&format!("{} partitions added, {} indexed", created.len(), indexed.len()));
        };
        progress::clear();
        let removed = Removed::remove(&client).await?;
        let partitions = ledger_partitions(&client).await?;
        let report = Report {
            created,
            indexed,
            partitions_ahead: last.partitions_ahead,
            skipped: last.skipped,
            removed,
            partitions,
        };
        self.format.print(&report, || text(&report))?;
        if let Some(skipped) = report.skipped.as_ref().filter(|_| !self.format.json) {
            eprint_redacted(&format!("put off: {skipped}\n"));
        }
        Ok(if report.partitions_ahead < MIN_AHEAD { ExitStatus::CheckFailed } else { ExitStatus::Success })
    }
}

fn text(report: &Report) -> String {
    let mut table = Table::new(["partition", "from", "to", "size", "by participant", ""]);
    for partition in &report.partitions {
        let name = &partition.partition_name;
        table.push([
            name.clone(),
            partition.starts_at.map_or_else(|| "start".to_owned(), |at| at.to_string()),
            partition.ends_at.map_or_else(|| "open".to_owned(), |at| at.to_string()),
            size(partition.size_bytes),
            if partition.is_searchable { "indexed" } else { "no index" }.to_owned(),
            if report.created.contains(name) { "new" } else { "" }.to_owned(),
        ]);
    }
    let Removed { payment_keys, events, metadata } = report.removed;
    let mut text = table.render();
    if payment_keys + events + metadata > 0 {
        text.push_str(&format!(
            "\nremoved past their retention: {payment_keys} idempotency keys, {events} events, {metadata} metadata entries"
        ));
    }
    text
}

fn size(bytes: i64) -> String {
    const UNITS: [(i64, &str); 2] = [(1_073_741_824, "GB"), (1_048_576, "MB")];
    let (unit, name) = UNITS.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1024, "kB"));
    format!("{} {name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_readable_unit() {
        assert_eq!([32_768, 5_242_880, 3_221_225_472].map(size), ["32 kB", "5 MB", "3 GB"]);
    }
}
