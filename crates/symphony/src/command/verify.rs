//! `symphony verify`: compares a database's schema with this build's.

use serde::Serialize;
use symphony_db::epoch;
use symphony_db::schema::verify::{Change, Difference, Severity};
use symphony_db::schema::{self, Lane, install::installed_lanes};

use super::with_examples;
use crate::{
    database::Database,
    eprint_redacted,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
};
use symphony_console::sanitize::plain;

/// Compare the schema in a database with this build's, and list every difference (drift)
///
/// Compares tables, columns, constraints, indexes, triggers, functions, views, owners, rights, roles, settings,
/// replication, and objects outside of the schema that reach into it. Any login may read the catalogue; a login with
/// one of Symphony's roles also compares the applied migrations.
///
/// An error changes behaviour or rights: exit code 1, and no relayer starts. A warning does not: exit code 0 unless
/// --strict is given.
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony verify && echo 'a relayer would start'\n  symphony verify --strict --json"))]
pub(crate) struct Arguments {
    /// Verify this lane (payment, event or metadata) instead of all installed ones; may be repeated
    #[arg(long = "lane", value_name = "LANE")]
    lanes: Vec<Lane>,
    /// Exit with 1 on warnings too
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Serialize)]
struct Report {
    /// No difference at all.
    clean: bool,
    errors: usize,
    warnings: usize,
    schema_version: i32,
    lanes: Vec<&'static str>,
    differences: Vec<Difference>,
    not_checked: Vec<&'static str>,
}

/// What a login without one of Symphony's roles cannot read.
const MIGRATIONS: &str = "which migrations were applied, and whose epoch it is: needs a login with one of the roles symphony_readonly, symphony_auditor, \
     symphony_operator and symphony_executor";

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let mut client = database.open().await?;
        let lanes = if self.lanes.is_empty() {
            let asked = installed_lanes(&client).await;
            asked.map_err(|error| Failure::database("the query failed", error))?
        } else {
            self.lanes
        };
        let mut differences = schema::verify(&mut client, &lanes).await?;
        let readable = schema::migrations::are_readable(&client).await?;
        if readable && !epoch::is_of_this_server(&client).await? {
            differences.push(epoch_of_another_server());
        }
        let errors = differences.iter().filter(|difference| difference.is_error()).count();
        let report = Report {
            clean: differences.is_empty(),
            errors,
            warnings: differences.len() - errors,
            schema_version: schema::VERSION,
            lanes: lanes.iter().map(|lane| lane.name()).collect(),
            differences,
            not_checked: if readable { Vec::new() } else { vec![MIGRATIONS] },
        };
        self.format.print(&report, || text(&report))?;
        if !self.format.json {
            report.not_checked.iter().for_each(|what| eprint_redacted(&format!("not checked: {what}\n")));
        }
        let passes = report.errors == 0 && (report.clean || !self.strict);
        Ok(if passes { ExitStatus::Success } else { ExitStatus::CheckFailed })
    }
}

/// A restored, copied or promoted database that no claim has reached. It is no drift of the schema, so an install has
/// nothing to do, and a relayer starts and opens the epoch.
fn epoch_of_another_server() -> Difference {
    let expected = "this server; open an epoch before producers start: symphony recover open";
    Difference {
        severity: Severity::Warning,
        change: Change::Changed {
            object: "newest epoch".to_owned(),
            facet: "server".to_owned(),
            expected: Some(expected.to_owned()),
            found: Some("another one, or an earlier timeline".to_owned()),
        },
    }
}

fn text(report: &Report) -> String {
    if report.clean {
        return format!(
            "no difference: schema version {}, lanes: {}",
            report.schema_version,
            report.lanes.join(", ")
        );
    }
    let line = |difference: &Difference| format!("{}: {}\n", difference.severity, plain(&difference.to_string()));
    report.differences.iter().map(line).collect()
}
