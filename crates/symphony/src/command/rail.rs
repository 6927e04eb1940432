//! `symphony rail`: the rails and their policies.

use std::str::FromStr;

use symphony_outbox::error::OperateError;
use symphony_outbox::payment::{Change, OnUnknown, Rail, RailPolicy, operator, reading};
use tokio_postgres::Client;

use super::{warrant::Warrant, with_examples};
use crate::{
    database::Database,
    failure::{Answer, Failure},
    output::Form,
    table::Table,
};

/// List, register, change, pause, resume and retire rails
///
/// To list needs a login with the role symphony_readonly, all else one with symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony rail list\n  \
     symphony rail add sepa --max-attempts 8 --ordered true --actor ana --reason 'go-live'\n  \
     symphony rail set sepa --max-in-flight 50 --actor ana --reason 'the bank asked for it'\n  \
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
        /// Show rails that were retired too
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Register a rail, so that payments can be enqueued to it; what is not given takes its default
    #[command(after_help = with_examples(
        "  symphony rail add sepa --max-attempts 8 --ordered true --actor ana --reason 'go-live'",
    ))]
    Add {
        /// The rail
        name: String,
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        warrant: Warrant,
        #[command(flatten)]
        form: Form,
    },
    /// Retire a rail without pending payments: nothing more can be enqueued to it, and its history stays
    #[command(after_help = with_examples("  symphony rail retire sepaa --actor ana --reason 'mistyped'"))]
    Retire {
        /// The rail
        name: String,
        #[command(flatten)]
        warrant: Warrant,
        #[command(flatten)]
        form: Form,
    },
    /// Change the policy of a registered rail; what is not given stays as it is
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
            Action::List { all, form } => {
                let mut rails = reading::rails(&client).await?;
                rails.retain(|rail| all || rail.is_registered());
                form.print(&rails, || text(&rails))?;
                return Ok(Answer::Yes);
            }
            Action::Add { name, policy, warrant, form } => {
                let added = operator::register_rail(&client, &name, &policy.into(), warrant.given()).await;
                (form, known(&client, &name, added).await?)
            }
            Action::Set { name, policy, warrant, form } => {
                let set = operator::set_rail(&client, &name, &policy.into(), warrant.given()).await;
                (form, known(&client, &name, set).await?)
            }
            Action::Retire { name, warrant, form } => {
                let retired = operator::retire(&client, &name, warrant.given()).await;
                (form, known(&client, &name, retired).await?)
            }
            Action::Pause { name, warrant, form } => {
                let paused = operator::pause(&client, &name, warrant.given()).await;
                (form, known(&client, &name, paused).await?)
            }
            Action::Resume { name, warrant, form } => {
                let resumed = operator::resume(&client, &name, warrant.given()).await;
                (form, known(&client, &name, resumed).await?)
            }
        };
        form.print(&rail, || text(std::slice::from_ref(&rail)))?;
        Ok(Answer::Yes)
    }
}

/// A refusal because the rail is not registered names the one that may have been meant.
async fn known(client: &Client, name: &str, answer: Result<Rail, OperateError>) -> Result<Rail, Failure> {
    let error = match answer {
        Ok(rail) => return Ok(rail),
        Err(error) => error,
    };
    let unknown = matches!(error, OperateError::UnknownRail(_));
    let failure = Failure::from(error);
    if !unknown {
        return Err(failure);
    }
    // Who may act may also read; if not, the refusal is told without a guess.
    let rails = reading::rails(client).await.unwrap_or_default();
    let names = rails.iter().filter(|rail| rail.is_registered()).map(|rail| rail.rail_type.as_str());
    Err(match nearest(name, names) {
        Some(near) => failure.hint(format!(
            "did you mean {near}? See all with: symphony rail list; register another with: symphony rail add"
        )),
        None => failure,
    })
}

/// The name that this one is most likely a mistyped form of.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let close = |other: &&str| strsim::damerau_levenshtein(name, other) <= 2 && other.len() > 2;
    names.filter(close).min_by_key(|other| strsim::damerau_levenshtein(name, other))
}

fn text(rails: &[Rail]) -> String {
    if rails.is_empty() {
        return "no rail is registered yet; register one with: symphony rail add NAME --actor … --reason …"
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
            if rail.is_registered() { yes_or_no(rail.paused) } else { "retired".to_owned() },
            rail.updated_by.clone(),
        ]);
    }
    table.render()
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes".to_owned() } else { "no".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_name_is_found_and_a_far_one_is_not() {
        let names = || ["sepa", "wire", "eu"].into_iter();
        for (name, near) in [
            ("sepaa", Some("sepa")),
            ("spea", Some("sepa")),
            ("wier", Some("wire")),
            ("fedwire", None),
            ("us", None),
        ] {
            assert_eq!(nearest(name, names()), near, "{name}");
        }
    }
}
