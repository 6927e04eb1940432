//! `symphony recover`: shows the epochs, releases rails that one has held, opens one by hand, lists orphaned outcomes, and compares
//! a rail with the bank's export.

mod reconcile;

use serde::Serialize;
use symphony_db::epoch::{self, Epoch};
use symphony_db::payment::reader::OrphanedOutcome;
use symphony_db::payment::{Rail, operator, reader};
use symphony_db::schema::{Lane, install::installed_lanes};

use super::{audit_context::AuditContext, rail, with_examples};
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    table::Table,
};

/// How many epochs `show` lists.
const SHOWN: u16 = 20;
/// How many orphaned outcomes `orphans` lists.
const MAX_ORPHANS: u16 = 10_000;

/// Recover from a failover or restore that may have lost commits: epochs, held rails, and what the bank has
///
/// The first claim on a promoted, restored or replaced server opens a new epoch. Payments of earlier epochs are then
/// inquired about before they are sent; rails with on_epoch_change HOLD wait for release. open is for a restore that
/// the server does not show, such as copied files that were started without recovery. orphans lists what relayers know about
/// payments that the database has lost; reconcile compares a rail with what the bank has executed. show and orphans need a
/// login with the role symphony_readonly, the others need symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony recover show\n  \
     symphony recover release sepa --actor ana --reason 'compared with the statement of 3 May'\n  \
     symphony recover open --actor ana --reason 'restored a copy of the files of 2 May'\n  \
     symphony recover orphans\n  \
     symphony recover reconcile --bank-export may.csv --rail sepa --actor ana --reason 'failover of 3 May'",
))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show the newest epochs and the held rails
    #[command(after_help = with_examples("  symphony recover show --json"))]
    Show {
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Release held rails: relayers claim them again, and inquire about each payment of an earlier epoch first
    #[command(after_help = with_examples(
        "  symphony recover release --actor ana --reason 'compared all rails with their statements'",
    ))]
    Release {
        /// The rail; all held rails if it is left out
        rail: Option<String>,
        #[command(flatten)]
        audit_context: AuditContext,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Open a new epoch by hand
    #[command(after_help = with_examples(
        "  symphony recover open --actor ana --reason 'restored a copy of the files of 2 May'",
    ))]
    Open {
        /// A lower bound of its number, for relayers that have seen a higher epoch than this server has
        #[arg(long, value_name = "N")]
        at_least: Option<i64>,
        #[command(flatten)]
        audit_context: AuditContext,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// List the newest orphaned outcomes: what the bank answered to payments whose history the database has lost
    #[command(after_help = with_examples("  symphony recover orphans --json"))]
    Orphans {
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Compare a rail with the bank's export; exit code 1 if they differ
    ///
    /// Lists what the bank executed without a payment here, or with one that is not DISPATCHED, and what is DISPATCHED here and
    /// absent in the export. Changes nothing but the audit log. Afterwards the orphaned outcomes of the rail in that time count as compared.
    #[command(after_help = with_examples(
        "  symphony recover reconcile --bank-export may.csv --rail sepa --actor ana --reason 'failover of 3 May'\n  \
         symphony recover reconcile --bank-export may.csv --rail sepa --key-column EndToEndId --time-column Booked \\\n    \
         --from 2026-05-03T00:00:00Z --to 2026-05-04T00:00:00Z --actor ana --reason 'failover of 3 May'",
    ))]
    Reconcile(Box<reconcile::Arguments>),
}

/// What `show` prints.
#[derive(Serialize)]
struct Shown {
    /// The newest first.
    epochs: Vec<Epoch>,
    held_rails: Vec<Rail>,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let client = database.connect().await?;
        match self.action {
            Action::Show { format } => {
                let epochs = epoch::newest_first(&client, SHOWN).await?;
                let installed = installed_lanes(&client).await;
                let installed = installed.map_err(|error| Failure::database("the query failed", error))?;
                let mut held_rails = Vec::new();
                if installed.contains(&Lane::Payment) {
                    held_rails = reader::rails(&client).await?;
                    held_rails.retain(|rail| rail.held_since_epoch.is_some());
                }
                let shown = Shown { epochs, held_rails };
                format.print(&shown, || text(&shown))?;
            }
            Action::Release { rail, audit_context, format } => {
                let audit = audit_context.given();
                let released = operator::recover_epoch(&client, rail.as_deref(), audit).await?;
                let none = || "no rail is held\n".to_owned();
                format.print(&released, || if released.is_empty() { none() } else { rail::text(&released) })?;
            }
            Action::Open { at_least, audit_context, format } => {
                let opened = epoch::open(&client, at_least, audit_context.given()).await?;
                format.print(&opened, || epochs(std::slice::from_ref(&opened)))?;
            }
            Action::Orphans { format } => {
                let found = reader::orphans(&client, MAX_ORPHANS).await?;
                format.print(&found, || orphans(&found))?;
            }
            Action::Reconcile(arguments) => {
                if !arguments.run(&client).await? {
                    return Ok(ExitStatus::CheckFailed);
                }
            }
        }
        Ok(ExitStatus::Success)
    }
}

fn text(shown: &Shown) -> String {
    let mut text = epochs(&shown.epochs);
    for rail in &shown.held_rails {
        let epoch = rail.held_since_epoch.unwrap_or_default();
        text.push_str(&format!("rail {} is held since epoch {epoch}\n", rail.rail_type));
    }
    text
}

fn epochs(epochs: &[Epoch]) -> String {
    let mut table = Table::new(["epoch", "opened", "system", "timeline", "reason"]);
    for epoch in epochs {
        table.push([
            epoch.counter.to_string(),
            epoch.opened_at.to_string(),
            epoch.system_identifier.to_string(),
            epoch.timeline.to_string(),
            epoch.reason.clone(),
        ]);
    }
    table.render()
}

fn orphans(orphans: &[OrphanedOutcome]) -> String {
    if orphans.is_empty() {
        return "no outcome is orphaned\n".to_owned();
    }
    let mut table = Table::new([
        "recorded",
        "open",
        "kind",
        "rail",
        "key",
        "state",
        "bank reference",
        "error",
        "epoch",
        "outbox",
        "worker",
    ]);
    for orphan in orphans {
        let plain = |text: &Option<String>| text.clone().unwrap_or_default();
        table.push([
            orphan.created_at.to_string(),
            if orphan.is_open { "yes".to_owned() } else { String::new() },
            orphan.kind.to_string(),
            plain(&orphan.rail_type),
            plain(&orphan.idempotency_key),
            orphan.state.to_string(),
            plain(&orphan.rail_reference),
            plain(&orphan.error_code),
            orphan.epoch.map(|epoch| epoch.to_string()).unwrap_or_default(),
            orphan.outbox_id.to_string(),
            orphan.worker_id.clone(),
        ]);
    }
    table.render()
}
