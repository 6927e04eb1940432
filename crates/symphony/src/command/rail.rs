//! `symphony rail`: lists and changes rails and their policies.

mod check;
mod preview;

use std::str::FromStr;

use serde_json::json;
use symphony_console::sanitize::plain;
use symphony_db::error::OperateError;
use symphony_db::payment::reader::{RefusedConfirmation, SameEndpoint};
use symphony_db::payment::{Change, OnEpochChange, OnFailure, OnUnknown, Rail, RailPolicy, operator, reader};
use tokio_postgres::Client;

use super::{audit_context::AuditContext, with_examples};
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    table::Table,
};

/// List, register, change, pause, resume and retire rails, make their payments due, and check an adapter
///
/// list and endpoints need a login with the role symphony_readonly, check and preview need no database; the other commands need
/// symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony rail list\n  \
     symphony rail add sepa --max-attempts 8 --ordered true --actor ana --reason 'go-live'\n  \
     symphony rail set sepa --max-in-flight 50 --actor ana --reason 'the bank asked for it'\n  \
     symphony rail pause sepa --actor ana --reason 'the bank is down'\n  \
     symphony rail same-endpoint sepa 'old.bank.example#…' 'new.bank.example#…' --actor ana --reason 'their notice of 3 May'",
))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    #[command(flatten)]
    OnDatabase(Action),
    Check(check::Arguments),
    /// Show the request that a rail of the settings would send for a payload, without its secrets; sends nothing
    #[command(after_help = with_examples(
        "  symphony rail preview sepa --config symphony.toml --payload payment.json",
    ))]
    Preview(preview::Arguments),
}

#[derive(clap::Subcommand)]
enum Action {
    /// List the rails and their policies
    #[command(after_help = with_examples("  symphony rail list --json"))]
    List {
        /// Include retired rails
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Register a rail, so that producers can enqueue to it; options that are not given take their defaults
    #[command(after_help = with_examples(
        "  symphony rail add sepa --max-attempts 8 --ordered true --actor ana --reason 'go-live'",
    ))]
    Add {
        /// The rail
        name: String,
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        audit_context: AuditContext,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Retire a rail without pending payments: producers can no longer enqueue to it; its history stays
    #[command(after_help = with_examples("  symphony rail retire sepaa --actor ana --reason 'mistyped'"))]
    Retire {
        /// The rail
        name: String,
        #[command(flatten)]
        audit_context: AuditContext,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Change the policy of a registered rail; options that are not given keep their values
    #[command(after_help = with_examples(
        "  symphony rail set sepa --max-attempts 8 --max-in-flight none --actor ana --reason 'go-live'",
    ))]
    Set {
        /// The rail
        name: String,
        #[command(flatten)]
        policy: Policy,
        #[command(flatten)]
        audit_context: AuditContext,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Pause a rail: relayers stop claiming its payments; dispatches that hold a lease continue
    #[command(after_help = with_examples("  symphony rail pause sepa --actor ana --reason 'the bank is down'"))]
    Pause {
        /// The rail
        name: String,
        #[command(flatten)]
        audit_context: AuditContext,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Declare two endpoints of a rail to be the same bank, whose address has moved: relayers then inquire at the new one
    ///
    /// Relayers stop a payment whose outcome is unknown at another endpoint than theirs. Declare two endpoints the same only
    /// if the bank at the new one knows the idempotency keys that were sent to the old one; otherwise it may pay again.
    #[command(after_help = with_examples(
        "  symphony rail same-endpoint sepa 'old.bank.example#…' 'new.bank.example#…' --actor ana --reason 'their notice of 3 May'",
    ))]
    SameEndpoint {
        /// The rail
        name: String,
        /// An endpoint, as symphony inspect shows it; unnamed: attempts without one
        endpoint: String,
        /// Another endpoint of the same bank, as symphony run --check shows it
        same_as: String,
        /// Revoke the declaration
        #[arg(long)]
        revoke: bool,
        #[command(flatten)]
        audit_context: AuditContext,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Make the scheduled payments of a rail due at once: retries, and what a clock that was ahead has scheduled
    ///
    /// At most 10,000 payments, those that are due first come first.
    #[command(after_help = with_examples("  symphony rail expedite sepa --actor ana --reason 'the clock was ahead'"))]
    Expedite {
        /// The rail
        name: String,
        #[command(flatten)]
        audit_context: AuditContext,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// List the endpoints that were declared to be the same bank
    #[command(after_help = with_examples("  symphony rail endpoints --json"))]
    Endpoints {
        #[command(flatten)]
        format: OutputFormat,
    },
    /// List the newest confirmations of banks that were refused: they contradict the ledger, or fit no payment
    #[command(after_help = with_examples("  symphony rail refused-confirmations --json"))]
    RefusedConfirmations {
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Resume a paused rail
    #[command(after_help = with_examples("  symphony rail resume sepa --actor ana --reason 'the bank is back'"))]
    Resume {
        /// The rail
        name: String,
        #[command(flatten)]
        audit_context: AuditContext,
        #[command(flatten)]
        format: OutputFormat,
    },
}

#[derive(clap::Args)]
struct Policy {
    /// Attempts before a payment becomes a dead letter, 1 to 20
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// Backoff after the first failed attempt; doubles with each further one
    #[arg(long, value_name = "SECONDS")]
    backoff_base: Option<u32>,
    /// Maximum backoff
    #[arg(long, value_name = "SECONDS")]
    backoff_cap: Option<u32>,
    /// Ordered rail (FIFO): dispatch each participant's payments strictly in sequence
    #[arg(long, value_name = "true|false")]
    ordered: Option<bool>,
    /// In-flight limit over all relayers; none: no limit
    #[arg(long, value_name = "N|none")]
    max_in_flight: Option<NumberOrNone>,
    /// After an unknown outcome: inquire at the rail, resend, or stop and make it a dead letter
    #[arg(long, value_name = "INQUIRE|RESEND|STOP")]
    on_unknown: Option<OnUnknown>,
    /// How long the rail remembers an idempotency key; none: forever
    #[arg(long, value_name = "SECONDS|none")]
    key_memory: Option<NumberOrNone>,
    /// When a new epoch opens: inquire about each payment before it is sent, or hold the rail until symphony recover
    #[arg(long, value_name = "INQUIRE|HOLD")]
    on_epoch_change: Option<OnEpochChange>,
    /// Publish to the event lane how each payment ends: payment.dispatched, payment.failed and others
    #[arg(long, value_name = "true|false")]
    publish_outcomes: Option<bool>,
    /// Ordered rail: what a failure does to the later payments of its participant; HOLD: an operator acts first
    #[arg(long, value_name = "CONTINUE|HOLD")]
    on_failure: Option<OnFailure>,
    /// Rate limit over all relayers: payments claimed per second, with bursts of one second's worth; none: no limit
    #[arg(long, value_name = "N|none")]
    max_per_second: Option<NumberOrNone>,
    /// After the rail has accepted a payment: how long until the next inquiry; max attempts bounds how many there are
    #[arg(long, value_name = "SECONDS")]
    confirm_every: Option<u32>,
}

/// A number, or `none` to clear the setting.
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
            on_epoch_change: given.on_epoch_change,
            publish_outcomes: given.publish_outcomes,
            on_failure: given.on_failure,
            max_per_second: change(given.max_per_second),
            confirm_every_seconds: given.confirm_every,
        }
    }
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let action = match self.command {
            Command::Check(arguments) => return arguments.run().await,
            Command::Preview(arguments) => return arguments.run(),
            Command::OnDatabase(action) => action,
        };
        let client = database.connect().await?;
        let (format, rail) = match action {
            Action::List { all, format } => {
                let mut rails = reader::rails(&client).await?;
                rails.retain(|rail| all || rail.is_registered());
                format.print(&rails, || text(&rails))?;
                return Ok(ExitStatus::Success);
            }
            Action::Endpoints { format } => {
                let declared = reader::same_endpoints(&client).await?;
                format.print(&declared, || endpoints_text(&declared))?;
                return Ok(ExitStatus::Success);
            }
            Action::RefusedConfirmations { format } => {
                let refused = reader::refused_confirmations(&client, MAX_REFUSED).await?;
                format.print(&refused, || refused_text(&refused))?;
                return Ok(ExitStatus::Success);
            }
            Action::SameEndpoint { name, endpoint, same_as, revoke, audit_context, format } => {
                let (pair, audit) = ((endpoint.as_str(), same_as.as_str()), audit_context.given());
                let recorded = if revoke {
                    operator::revoke_same_endpoint(&client, &name, pair, audit).await
                } else {
                    operator::declare_same_endpoint(&client, &name, pair, audit).await
                };
                let recorded = or_suggest(&client, &name, recorded).await?;
                let is = if revoke { "are no longer declared" } else { "are declared" };
                format.print(&recorded, || {
                    format!("{endpoint} and {same_as} {is} the same endpoint of rail {name}")
                })?;
                return Ok(ExitStatus::Success);
            }
            Action::Add { name, policy, audit_context, format } => {
                let added = operator::register_rail(&client, &name, &policy.into(), audit_context.given()).await;
                (format, or_suggest(&client, &name, added).await?)
            }
            Action::Set { name, policy, audit_context, format } => {
                let set = operator::set_rail(&client, &name, &policy.into(), audit_context.given()).await;
                (format, or_suggest(&client, &name, set).await?)
            }
            Action::Retire { name, audit_context, format } => {
                let retired = operator::retire(&client, &name, audit_context.given()).await;
                (format, or_suggest(&client, &name, retired).await?)
            }
            Action::Pause { name, audit_context, format } => {
                let paused = operator::pause(&client, &name, audit_context.given()).await;
                (format, or_suggest(&client, &name, paused).await?)
            }
            Action::Expedite { name, audit_context, format } => {
                let made_due = operator::make_due(&client, &name, audit_context.given()).await;
                let made_due = or_suggest(&client, &name, made_due).await?;
                format.print(&json!({ "made_due": made_due }), || format!("{made_due} payments are due now\n"))?;
                return Ok(ExitStatus::Success);
            }
            Action::Resume { name, audit_context, format } => {
                let resumed = operator::resume(&client, &name, audit_context.given()).await;
                (format, or_suggest(&client, &name, resumed).await?)
            }
        };
        format.print(&rail, || text(std::slice::from_ref(&rail)))?;
        Ok(ExitStatus::Success)
    }
}

/// How many refused confirmations are listed.
const MAX_REFUSED: u16 = 1000;

fn refused_text(refused: &[RefusedConfirmation]) -> String {
    if refused.is_empty() {
        return "no confirmation was refused\n".to_owned();
    }
    let mut table =
        Table::new(["at", "rail", "key", "the bank says", "refused as", "outbox", "reference", "message"]);
    for one in refused {
        let or_none = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), plain);
        table.push([
            one.created_at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
            plain(&one.rail_type),
            plain(&one.idempotency_key),
            one.outcome.to_string(),
            one.kind.to_string(),
            one.outbox_id.map_or_else(|| "-".to_owned(), |id| id.to_string()),
            or_none(one.rail_reference.as_deref()),
            plain(&one.confirmation_id),
        ]);
    }
    table.render()
}

/// Adds the nearest registered name to the error of an unknown rail.
async fn or_suggest<T>(client: &Client, name: &str, result: Result<T, OperateError>) -> Result<T, Failure> {
    let error = match result {
        Ok(done) => return Ok(done),
        Err(error) => error,
    };
    let unknown = matches!(error, OperateError::UnknownRail(_));
    let failure = Failure::from(error);
    if !unknown {
        return Err(failure);
    }
    // An operator may also read rails; if not, the error has no suggestion.
    let rails = reader::rails(client).await.unwrap_or_default();
    let names = rails.iter().filter(|rail| rail.is_registered()).map(|rail| rail.rail_type.as_str());
    Err(match nearest(name, names) {
        Some(near) => failure.hint(format!(
            "did you mean {near}? List the rails with: symphony rail list; register one with: symphony rail add"
        )),
        None => failure,
    })
}

/// The registered name within two typing errors of this one.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let close = |other: &&str| strsim::damerau_levenshtein(name, other) <= 2 && other.len() > 2;
    names.filter(close).min_by_key(|other| strsim::damerau_levenshtein(name, other))
}

pub(super) fn text(rails: &[Rail]) -> String {
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
        "per second",
        "on unknown",
        "key memory",
        "on epoch",
        "on failure",
        "outcomes",
        "confirm every",
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
            rail.max_in_flight.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string()),
            rail.max_per_second.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string()),
            rail.on_unknown.to_string(),
            rail.key_memory_seconds.map_or_else(|| "forever".to_owned(), |seconds| format!("{seconds}s")),
            rail.on_epoch_change.to_string(),
            if rail.ordered { rail.on_failure.to_string() } else { "–".to_owned() },
            if rail.publish_outcomes { "published" } else { "ledger only" }.to_owned(),
            format!("{}s", rail.confirm_every_seconds),
            match (rail.is_registered(), rail.held_since_epoch) {
                (true, Some(_)) => "held".to_owned(),
                (true, None) => yes_or_no(rail.paused),
                (false, _) => "retired".to_owned(),
            },
            rail.updated_by.clone(),
        ]);
    }
    table.render()
}

fn endpoints_text(declared: &[SameEndpoint]) -> String {
    if declared.is_empty() {
        return "no endpoints were declared to be the same bank".to_owned();
    }
    let mut table = Table::new(["rail", "endpoint", "same as", "declared by", "declared at", "reason"]);
    for pair in declared {
        table.push([
            pair.rail_type.clone(),
            pair.endpoint.clone(),
            pair.same_as.clone(),
            pair.declared_by.clone(),
            pair.declared_at.strftime("%Y-%m-%d %H:%MZ").to_string(),
            pair.reason.clone(),
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
