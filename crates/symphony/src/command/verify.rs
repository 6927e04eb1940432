//! `symphony verify`: compares a database with what this build makes.

use serde::Serialize;
use symphony_outbox::schema::{self, Lane, install::installed_lanes, verify::Difference};

use super::with_examples;
use crate::{
    database::Database,
    failure::{Answer, Failure},
    output::{Form, plain},
};

/// Compare the schema in a database with what this build makes, and name every difference
///
/// Tables, columns, constraints, indexes, triggers, functions, views, owners and rights. Reads the catalogue alone,
/// which any login may do.
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony verify && echo 'the schema is what it should be'"))]
pub(crate) struct Arguments {
    /// Verify this lane, payment, event or metadata; may be repeated; those that are installed unless given
    #[arg(long = "lane", value_name = "LANE")]
    lanes: Vec<Lane>,
    #[command(flatten)]
    form: Form,
}

#[derive(Serialize)]
struct Report {
    clean: bool,
    schema_version: i32,
    lanes: Vec<&'static str>,
    differences: Vec<Difference>,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        let mut client = database.connect().await?;
        let lanes = if self.lanes.is_empty() {
            let asked = installed_lanes(&client).await;
            asked.map_err(|error| Failure::database("the database could not be asked", error))?
        } else {
            self.lanes
        };
        let differences = schema::verify(&mut client, &lanes).await?;
        let report = Report {
            clean: differences.is_empty(),
            schema_version: schema::VERSION,
            lanes: lanes.iter().map(|lane| lane.name()).collect(),
            differences,
        };
        self.form.print(&report, || text(&report))?;
        Ok(if report.clean { Answer::Yes } else { Answer::No })
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
    report.differences.iter().map(|difference| format!("{}\n", plain(&difference.to_string()))).collect()
}
