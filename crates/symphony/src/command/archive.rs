//! `symphony archive`: exports partitions of the ledger that are past their retention, verifies the export, and drops
//! them.
//!
//! # Layout
//! - [`export`]: writes the rows of a partition to compressed files
//! - [`read_back`]: reads an archive from disk
//! - [`manifest`]: what an archive says about itself
//!
//! Each step can be interrupted; the next run continues there:
//!
//! 1. Export to a hidden folder, and rename it when it is on disk.
//! 2. Read it back. The database compares it with the partition and records it.
//! 3. Detach the partition, without blocking other statements.
//! 4. Attach an empty first partition in its place, and drop the table.

mod export;
mod manifest;
mod read_back;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::Timestamp;
use serde::Serialize;
use symphony_db::payment::archive::{self, ReadBack};
use symphony_db::payment::operator;
use symphony_db::payment::reader::{
    self, ArchiveBlocker, ArchivedPartition, LedgerPartition, PartitionToArchive, archive_blockers,
    archived_partitions, ledger_partitions, partitions_to_archive,
};
use symphony_db::retention::{self, Kept};
use symphony_db::schema::owner;
use tokio_postgres::Client;

use super::with_examples;
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    table::Table,
    values,
};

use export::{Export, file_failure};

/// Archive partitions of the payment ledger that are past their retention, and drop them
///
/// Each partition becomes a folder of NDJSON files, compressed with zstd, and a manifest. The archive is read back and
/// compared with the partition before that is detached and dropped. Producers and relayers do not wait. If the command
/// is interrupted, run it again with the same --to. A partition with pending payments or open dead letters is refused,
/// and so are those after it: exit code 1. --after-command runs a program with the folder as its argument before
/// anything is dropped, for example to copy it elsewhere. Needs a superuser or a member of
/// symphony_control; --dry-run needs symphony_readonly.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony archive --to /srv/archive/shop --dry-run\n  \
     symphony archive --to /srv/archive/shop --actor cron --reason 'retention of 400 days'\n  \
     symphony archive --to /srv/archive/shop --after-command ./upload --location s3://bucket/shop \\\n    \
     --actor cron --reason 'retention of 400 days'",
))]
pub(crate) struct Arguments {
    /// Folder for the archives of this database; it must exist
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Leave out partitions that end after this date or time
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    before: Option<Timestamp>,
    /// Show what would be archived and what prevents it; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Start another file after this much of uncompressed rows, 1 to 4096
    #[arg(long, value_name = "MB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=4096))]
    part_mb: u64,
    /// Lock timeout, 1 to 3600: how long to wait for transactions that use the ledger
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    lock_timeout: u32,
    /// Program to run with each archive's folder as its argument, after it was verified
    #[arg(long, value_name = "PROGRAM")]
    after_command: Option<PathBuf>,
    /// Where the archives will be found, for the record, if not in the folder
    #[arg(long, value_name = "TEXT")]
    location: Option<String>,
    /// Your name, for the audit log
    #[arg(long, value_name = "NAME", required_unless_present = "dry_run")]
    actor: Option<String>,
    /// Why you do it, for the audit log
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    reason: Option<String>,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Serialize)]
struct Report {
    dry_run: bool,
    keep_days: Option<i32>,
    partitions: Vec<Archived>,
}

/// What was done with a partition, or would be.
#[derive(Serialize)]
struct Archived {
    partition: String,
    starts_at: Option<Timestamp>,
    ends_at: Option<Timestamp>,
    result: &'static str,
    archive_name: Option<String>,
    rows: Option<i64>,
    location: Option<String>,
    blockers: Vec<ArchiveBlocker>,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let client = database.connect().await?;
        let keep_days = retention::policies(&client)
            .await?
            .into_iter()
            .find_map(|policy| (policy.kept == Kept::PaymentLedger).then_some(policy.keep_days).flatten());
        if keep_days.is_none() && archived_partitions(&client).await?.iter().all(|archive| !archive.is_kept) {
            return Err(Failure::new("the ledger is kept for ever: no retention is set")
                .hint("set one with: symphony retention set payment_ledger 400d --actor … --reason …"));
        }
        let partitions = if self.dry_run {
            self.plan(&client).await?
        } else {
            let _lock = self.lock_folder()?;
            owner::become_owner(&client, self.lock_timeout).await?;
            Run { arguments: &self, client: &client }.archive().await?
        };
        let report = Report { dry_run: self.dry_run, keep_days, partitions };
        self.format.print(&report, || text(&report))?;
        let refused = report.partitions.iter().any(|partition| !partition.blockers.is_empty());
        Ok(if refused { ExitStatus::CheckFailed } else { ExitStatus::Success })
    }

    async fn plan(&self, client: &Client) -> Result<Vec<Archived>, Failure> {
        let mut plan = Vec::new();
        for partition in partitions_to_archive(client, self.before).await? {
            let blockers = archive_blockers(client, &partition.partition_name).await?;
            let result = if blockers.is_empty() { "would archive" } else { "blocked" };
            plan.push(Archived { blockers, ..Archived::of(&partition, result) });
        }
        Ok(plan)
    }

    /// The lock of the folder, which the system releases when the process ends.
    fn lock_folder(&self) -> Result<File, Failure> {
        let path = self.to.join(".symphony-archive.lock");
        let file = File::create(&path).map_err(|error| file_failure("create", &path, error))?;
        file.try_lock().map_err(|_| {
            Failure::new(format!("another symphony archive writes to {}", self.to.display()))
                .hint("wait until it has ended")
        })?;
        Ok(file)
    }
}

impl Archived {
    fn of(partition: &PartitionToArchive, result: &'static str) -> Self {
        Self {
            partition: partition.partition_name.clone(),
            starts_at: partition.starts_at,
            ends_at: Some(partition.ends_at),
            result,
            archive_name: None,
            rows: None,
            location: None,
            blockers: Vec::new(),
        }
    }

    fn dropped(archive: &ArchivedPartition) -> Self {
        Self {
            partition: archive.partition_name.clone(),
            starts_at: None,
            ends_at: None,
            result: "archived",
            archive_name: Some(archive.archive_name.clone()),
            rows: Some(archive.row_count),
            location: Some(archive.location.clone()),
            blockers: Vec::new(),
        }
    }
}

/// One run, as the owner of the ledger.
struct Run<'a> {
    arguments: &'a Arguments,
    client: &'a Client,
}

impl Run<'_> {
    async fn archive(&self) -> Result<Vec<Archived>, Failure> {
        let mut done = Vec::new();
        // What an interrupted run has recorded comes first.
        for archive in archived_partitions(self.client).await?.iter().filter(|archive| archive.is_kept) {
            self.remove(archive).await?;
            done.push(Archived::dropped(archive));
        }
        self.close_gap().await?;
        for partition in partitions_to_archive(self.client, self.arguments.before).await? {
            if partition.is_detaching {
                let name = &partition.partition_name;
                return Err(Failure::new(format!("partition {name} is being detached, and has no archive")).hint(
                    "another program began to detach it: let it finish, attach the table again, and run this again",
                ));
            }
            let blockers = archive_blockers(self.client, &partition.partition_name).await?;
            if !blockers.is_empty() {
                done.push(Archived { blockers, ..Archived::of(&partition, "blocked") });
                break;
            }
            let archive = self.record(&partition).await?;
            reach("archive_recorded");
            self.remove(&archive).await?;
            done.push(Archived {
                archive_name: Some(archive.archive_name.clone()),
                rows: Some(archive.row_count),
                location: Some(archive.location.clone()),
                ..Archived::of(&partition, "archived")
            });
        }
        Ok(done)
    }

    /// Exports a partition, reads the archive back, and lets the database compare and record it.
    async fn record(&self, partition: &PartitionToArchive) -> Result<ArchivedPartition, Failure> {
        let recorded = archived_partitions(self.client).await?;
        let archive_name = unused_name(partition, &recorded);
        let folder = self.arguments.to.join(&archive_name);
        // A complete folder is from a run that ended before it was recorded.
        if !folder.exists() {
            let database = archive::database_name(self.client).await?;
            let export = Export {
                partition,
                archive_name: &archive_name,
                database: &database,
                folder: &self.arguments.to,
                part_bytes: self.arguments.part_mb << 20,
            };
            export.run(self.client).await?;
            reach("archive_exported");
        }
        let archive = read_back::read(&folder)?;
        self.run_after_command(&folder)?;
        let location = match &self.arguments.location {
            Some(prefix) => format!("{}/{archive_name}", prefix.trim_end_matches('/')),
            None => fs::canonicalize(&folder)
                .map_err(|error| file_failure("find", &folder, error))?
                .display()
                .to_string(),
        };
        let read = ReadBack {
            partition_name: &partition.partition_name,
            archive_name: &archive_name,
            row_count: archive.manifest.content.rows,
            content_digest: &archive.content_digest,
            manifest_digest: &archive.manifest_digest,
            location: &location,
        };
        let id = archive::record(self.client, read, self.audit()).await?;
        let recorded = archived_partitions(self.client).await?;
        recorded.into_iter().find(|archive| archive.archive_id == id).ok_or_else(|| {
            Failure::new(format!("the record of archive {archive_name} is gone")).hint("run it again")
        })
    }

    fn run_after_command(&self, folder: &Path) -> Result<(), Failure> {
        let Some(program) = &self.arguments.after_command else { return Ok(()) };
        let hint = "nothing was dropped; correct it and run symphony archive again";
        let status = Command::new(program)
            .arg(folder)
            .status()
            .map_err(|error| Failure::because(format!("cannot run {}", program.display()), error).hint(hint))?;
        if status.success() {
            Ok(())
        } else {
            Err(Failure::new(format!("{} failed: {status}", program.display())).hint(hint))
        }
    }

    /// Detaches the partition of a recorded archive, and drops its table.
    async fn remove(&self, archive: &ArchivedPartition) -> Result<(), Failure> {
        let folder = self.arguments.to.join(&archive.archive_name);
        if read_back::manifest_digest(&folder)? != archive.manifest_digest {
            return Err(Failure::new(format!(
                "the archive in {} is not the one that was recorded",
                folder.display()
            ))
            .hint("run it with the folder in which it was archived as --to; nothing was dropped"));
        }
        if let Some(partition) = self.attached(&archive.partition_name).await? {
            archive::detach(self.client, &partition.partition_name, partition.is_detaching)
                .await
                .map_err(|error| Failure::from(error).hint(STILL_IN_USE))?;
            reach("archive_detached");
        }
        self.close_gap().await?;
        archive::drop_partition(self.client, archive.archive_id, self.audit()).await?;
        reach("archive_dropped");
        // The dropped table may have had the name of the first partition.
        self.close_gap().await
    }

    /// Lets the ledger begin with an empty first partition, so that every outbox id has one.
    async fn close_gap(&self) -> Result<(), Failure> {
        let partitions = ledger_partitions(self.client).await?;
        if let [first, second, ..] = partitions.as_slice()
            && first.from_id.is_none()
            && (first.to_id != second.from_id || first.is_detaching)
        {
            // It ends where an archived partition began: it is made anew.
            archive::detach(self.client, &first.partition_name, first.is_detaching)
                .await
                .map_err(|error| Failure::from(error).hint(STILL_IN_USE))?;
        }
        archive::attach_first_partition(self.client).await?;
        Ok(())
    }

    async fn attached(&self, name: &str) -> Result<Option<LedgerPartition>, Failure> {
        Ok(reader::ledger_partitions(self.client)
            .await?
            .into_iter()
            .find(|partition| partition.partition_name == name))
    }

    fn audit(&self) -> operator::AuditContext<'_> {
        operator::AuditContext {
            actor: self.arguments.actor.as_deref().unwrap_or_default(),
            reason: self.arguments.reason.as_deref().unwrap_or_default(),
        }
    }
}

const STILL_IN_USE: &str =
    "a transaction still uses the ledger, such as a dump or a report: run it again when that has ended";

/// The name of a partition's archive: its range, and a number if an earlier archive has that name.
fn unused_name(partition: &PartitionToArchive, recorded: &[ArchivedPartition]) -> String {
    let day = |at: Timestamp| at.strftime("%Y%m%d").to_string();
    let from = partition.starts_at.map_or_else(|| "start".to_owned(), day);
    let name = format!("payment-ledger-{from}-{}", day(partition.ends_at));
    let is_used = |name: &str| recorded.iter().any(|archive| archive.archive_name == name);
    if is_used(&name) {
        (2_u32..).map(|number| format!("{name}-{number}")).find(|name| !is_used(name)).unwrap_or(name)
    } else {
        name
    }
}

/// Aborts the process at a named step, in builds for tests.
fn reach(step: &str) {
    #[cfg(feature = "fail-points")]
    if std::env::var(symphony_relay::fail_point::VARIABLE).is_ok_and(|name| name == step) {
        std::process::abort();
    }
    let _ = step;
}

fn text(report: &Report) -> String {
    if report.partitions.is_empty() {
        return format!(
            "no partition is past the retention of {} days",
            report.keep_days.map_or_else(|| "…".to_owned(), |days| days.to_string())
        );
    }
    let mut table = Table::new(["partition", "until", "result", "rows", "archive"]);
    for partition in &report.partitions {
        table.push([
            partition.partition.clone(),
            partition.ends_at.map(|at| at.to_string()).unwrap_or_default(),
            partition.result.to_owned(),
            partition.rows.map(|rows| rows.to_string()).unwrap_or_default(),
            partition.location.clone().unwrap_or_default(),
        ]);
    }
    let mut text = table.render();
    for partition in &report.partitions {
        for blocker in &partition.blockers {
            let ids: Vec<_> = blocker.outbox_ids.iter().take(3).map(ToString::to_string).collect();
            text.push_str(&format!(
                "\n{}: {} {}: {}{}",
                partition.partition,
                blocker.outboxes,
                blocker.blocker,
                ids.join(", "),
                next_step(&blocker.blocker)
            ));
        }
    }
    text
}

fn next_step(blocker: &str) -> &'static str {
    match blocker {
        "DEAD_LETTER" | "UNKNOWN_OUTCOME" => "; redrive or resolve them: symphony dlq list",
        _ => "; wait until they have ended",
    }
}
