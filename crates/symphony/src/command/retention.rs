//! `symphony retention`: shows and sets how long ended rows are kept.

use std::str::FromStr;

use symphony_db::{
    payment::operator,
    retention::{self, Kept, Retention},
};

use super::{audit_context::AuditContext, with_examples};
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    table::Table,
};

/// Show and set how long the ledger, idempotency keys, events and metadata are kept
///
/// By default everything is kept for ever. Relayers and symphony maintain remove keys, events and metadata past their
/// retention; symphony archive archives the ledger. show needs a login with the role symphony_readonly, set needs
/// symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony retention show\n  \
     symphony retention set payment_ledger 400d --actor ana --reason 'policy 7, 13 months'\n  \
     symphony retention set payment_keys forever --actor ana --reason 'policy 7'",
))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Show how long each kind is kept
    #[command(after_help = with_examples("  symphony retention show --json"))]
    Show {
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Set for how many days a kind is kept
    #[command(after_help = with_examples(
        "  symphony retention set events 30d --actor ana --reason 'consumers read within a week'",
    ))]
    Set {
        /// payment_ledger, payment_keys, events or metadata
        kept: Kept,
        /// A number of days such as 400d, or forever
        #[arg(value_name = "DAYS|forever")]
        keep: Keep,
        #[command(flatten)]
        audit_context: AuditContext,
        #[command(flatten)]
        format: OutputFormat,
    },
}

/// A number of days, or for ever.
#[derive(Clone, Copy)]
struct Keep(Option<i32>);

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "forever" => Ok(Self(None)),
            days => days
                .strip_suffix('d')
                .unwrap_or(days)
                .parse()
                .map(|days| Self(Some(days)))
                .map_err(|_| "a whole number of days such as 400d, or forever".into()),
        }
    }
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let client = database.connect().await?;
        let format = match self.action {
            Action::Show { format } => format,
            Action::Set { kept, keep, audit_context, format } => {
                let audit: operator::AuditContext<'_> = audit_context.given();
                retention::set(&client, kept, keep.0, audit).await?;
                format
            }
        };
        let policies = retention::policies(&client).await?;
        format.print(&policies, || text(&policies))?;
        Ok(ExitStatus::Success)
    }
}

fn text(policies: &[Retention]) -> String {
    let mut table = Table::new(["kept", "for", "removes what ended before", "set by", "reason"]);
    for policy in policies {
        table.push([
            policy.kept.to_string(),
            policy.keep_days.map_or_else(|| "ever".to_owned(), |days| format!("{days} days")),
            policy.cutoff.map(|at| at.to_string()).unwrap_or_default(),
            policy.changed_by.clone().unwrap_or_default(),
            policy.reason.clone().unwrap_or_default(),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retention_is_a_number_of_days_or_for_ever() {
        assert_eq!("400d".parse::<Keep>().unwrap().0, Some(400));
        assert_eq!("7".parse::<Keep>().unwrap().0, Some(7));
        assert_eq!("forever".parse::<Keep>().unwrap().0, None);
        assert!("a year".parse::<Keep>().is_err());
    }
}
