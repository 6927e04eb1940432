//! `symphony recover`: shows the epochs, releases rails that one has held, and opens one by hand.

use serde::Serialize;
use symphony_db::epoch::{self, Epoch};
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

/// Recover from a failover or restore that may have lost commits: show epochs, release rails, open an epoch
///
/// The first claim on a promoted, restored or replaced server opens a new epoch. Payments of earlier epochs are then
/// inquired about before they are sent; rails with on_epoch_change HOLD wait for release. open is for a restore that
/// the server does not show, such as copied files that were started without recovery. show needs a login with the role
/// symphony_readonly, the others need symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony recover show\n  \
     symphony recover release sepa --actor ana --reason 'compared with the statement of 3 May'\n  \
     symphony recover open --actor ana --reason 'restored a copy of the files of 2 May'",
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
