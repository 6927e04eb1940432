//! `symphony rail`: the rails and their policies.

use std::str::FromStr;

use symphony_outbox::payment::{Change, OnUnknown, Rail, RailPolicy, operator, reading};

use super::{warrant::Warrant, with_examples};
use crate::{
    database::Database,
    failure::{Answer, Failure},
    output::Form,
    table::Table,
};

/// List, register, change, pause and resume rails
///
/// To list needs a login with the role symphony_readonly, all else one with symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony rail list\n  \
     symphony rail set sepa --max-attempts 8 --ordered true --actor ana --reason 'go-live'\n  \
     symphony rail pause sepa --actor ana --reason 'the bank is down'",
))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// List the rails and their policies
    #[command(after_help = with_examples("  symphony rail list --json"))]
    List {
        #[command(flatten)]
        form: Form,
    },
    /// Register a rail, or change its policy; what is not given stays as it is
    #[command(after_help = with_examples(
        "  symphony rail set sepa --max-attempts 8 --max-in-flight none --actor ana --reason 'go-live'",
    ))]
    Set {
        /// The rail
        name: String,
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        warrant: Warrant,
        #[command(flatten)]
        form: Form,
    },
    /// Stop handing out the work of a rail; what is under a lease goes on to its end
    #[command(after_help = with_examples("  symphony rail pause sepa --actor ana --reason 'the bank is down'"))]
    Pause {
        /// The rail
        name: String,
        #[command(flatten)]
        warrant: Warrant,
        #[command(flatten)]
        form: Form,
    },
    /// Hand out the work of a rail again
    #[command(after_help = with_examples("  symphony rail resume sepa --actor ana --reason 'the bank is back'"))]
    Resume {
        /// The rail
        name: String,
        #[command(flatten)]
        warrant: Warrant,
        #[command(flatten)]
        form: Form,
    },
}

#[derive(clap::Args)]
struct Policy {
    /// Attempts after which a payment goes to people, 1 to 20
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Delay after the first failed attempt; each further one doubles it
    #[arg(long, value_name = "SECONDS")]
    backoff_base: Option<u32>,
    /// The longest delay that doubling can reach
    #[arg(long, value_name = "SECONDS")]
    backoff_cap: Option<u32>,
    /// Whether the instructions of one participant leave strictly in sequence
    #[arg(long, value_name = "true|false")]
    ordered: Option<bool>,
    /// Most payments under way at one time, over all workers; none: no cap
    #[arg(long, value_name = "N|none")]
    max_in_flight: Option<NumberOrNone>,
    /// What to do when nobody knows whether it paid: ask the rail, send again, or leave it to people
    #[arg(long, value_name = "INQUIRE|RESEND|STOP")]
    on_unknown: Option<OnUnknown>,
    /// How long the rail remembers an idempotency key; none: for ever
    #[arg(long, value_name = "SECONDS|none")]
    key_memory: Option<NumberOrNone>,
}

/// The value of an option that can be cleared.
#[derive(Clone, Copy)]
struct NumberOrNone(Option<u32>);

impl FromStr for NumberOrNone {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            number => {
                number.parse().map(|number| Self(Some(number))).map_err(|_| "a whole number, or none".into())
            }
        }
    }
}

impl From<Policy> for RailPolicy {
    fn from(given: Policy) -> Self {
        let change = |given: Option<NumberOrNone>| match given {
            None => Change::Keep,
            Some(NumberOrNone(None)) => Change::Clear,
            Some(NumberOrNone(Some(number))) => Change::Set(number),
        };
        Self {
            max_attempts: given.max_attempts,
            backoff_base_seconds: given.backoff_base,
            backoff_cap_seconds: given.backoff_cap,
            ordered: given.ordered,
            max_in_flight: change(given.max_in_flight),
            on_unknown: given.on_unknown,
            key_memory_seconds: change(given.key_memory),
        }
    }
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        let client = database.connect().await?;
        let (form, rail) = match self.action {
            Action::List { form } => {
                let rails = reading::rails(&client).await?;
                form.print(&rails, || text(&rails))?;
                return Ok(Answer::Yes);
            }
            Action::Set { name, policy, warrant, form } => {
                (form, operator::set_rail(&client, &name, &policy.into(), warrant.given()).await?)
            }
            Action::Pause { name, warrant, form } => {
                (form, operator::pause(&client, &name, warrant.given()).await?)
            }
            Action::Resume { name, warrant, form } => {
                (form, operator::resume(&client, &name, warrant.given()).await?)
            }
        };
        form.print(&rail, || text(std::slice::from_ref(&rail)))?;
        Ok(Answer::Yes)
    }
}

fn text(rails: &[Rail]) -> String {
    if rails.is_empty() {
        return "no rail is registered yet; register one with: symphony rail set NAME --actor … --reason …"
            .to_owned();
    }
    let heading = [
        "rail",
        "attempts",
        "backoff",
        "ordered",
        "in flight",
        "on unknown",
        "key memory",
        "paused",
        "changed by",
    ];
    let mut table = Table::new(heading);
    for rail in rails {
        table.push([
            rail.rail_type.clone(),
            rail.max_attempts.to_string(),
            format!("{}s to {}s", rail.backoff_base_seconds, rail.backoff_cap_seconds),
            yes_or_no(rail.ordered),
            rail.max_in_flight.map_or_else(|| "no cap".to_owned(), |cap| cap.to_string()),
            rail.on_unknown.to_string(),
            rail.key_memory_seconds.map_or_else(|| "for ever".to_owned(), |seconds| format!("{seconds}s")),
            yes_or_no(rail.paused),
            rail.updated_by.clone(),
        ]);
    }
    table.render()
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes".to_owned() } else { "no".to_owned() }
}
