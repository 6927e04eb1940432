//! `symphony verify`: compares a database with what this build makes.

use serde::Serialize;
use symphony_outbox::schema::{self, Lane, install::installed_lanes, verify::Difference};

use super::with_examples;
use crate::{
    complain,
    database::Database,
    failure::{Answer, Failure},
    output::{Form, plain},
};

/// Compare the schema in a database with what this build makes, and name every difference
///
/// Tables, columns, constraints, indexes, triggers, functions, views, owners, rights, roles, settings, replication, and what
/// outside of the schema reaches into it. Reads the catalogue, which any login may do, and with a role of Symphony's also
/// which migrations were applied.
///
/// An error changes what can happen, or who can read or write: exit code 1, and no relayer starts. A warning does not: exit
/// code 0 unless --strict is given.
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony verify && echo 'a relayer would start'\n  symphony verify --strict --json"))]
pub(crate) struct Arguments {
    /// Verify this lane, payment, event or metadata; may be repeated; those that are installed unless given
    #[arg(long = "lane", value_name = "LANE")]
    lanes: Vec<Lane>,
    /// Exit with 1 on warnings too
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    form: Form,
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

/// What a login without any right cannot know.
const MIGRATIONS: &str = "which migrations were applied: needs a login with one of the roles symphony_readonly, symphony_auditor, \
     symphony_operator and symphony_executor";

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        let mut client = database.open().await?;
        let lanes = if self.lanes.is_empty() {
            let asked = installed_lanes(&client).await;
            asked.map_err(|error| Failure::database("the database could not be asked", error))?
        } else {
            self.lanes
        };
        let differences = schema::verify(&mut client, &lanes).await?;
        let readable = schema::migrations::are_readable(&client).await?;
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
        self.form.print(&report, || text(&report))?;
        if !self.form.json {
            report.not_checked.iter().for_each(|what| complain(&format!("not checked: {what}\n")));
        }
        let passes = report.errors == 0 && (report.clean || !self.strict);
        Ok(if passes { Answer::Yes } else { Answer::No })
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
