//! Why not to start: what would make a relayer wait for ever, or fail at every turn, is said before it begins.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use symphony_outbox::payment::{OnUnknown, reading};
use symphony_outbox::rights;
use symphony_outbox::schema::install::installed_lanes;
use symphony_outbox::schema::{self, Lane};
use tokio_postgres::Client;

use crate::config::UnservedRails;
use crate::failure::Failure;
use crate::output::plain;

/// The role that a relayer's login needs, and all that it should hold.
const ROLES: [&str; 1] = ["symphony_executor"];

/// Members of our roles can cause warnings; they must not be able to flood a log.
const MAX_LOGGED_WARNINGS: usize = 20;

/// What is served here, as the checks see it.
pub(crate) struct Serving<'a> {
    /// The rails that have a section, and whether each can be asked what became of a payment.
    pub(crate) rails: Vec<(&'a str, bool)>,
    pub(crate) unserved: UnservedRails,
}

/// Refuses to start on a database that differs from this build in what can happen there. Harmless differences are logged.
pub(crate) async fn schema(client: &mut Client, lanes: &[Lane]) -> Result<(), Failure> {
    let asked = installed_lanes(client).await;
    let installed = asked.map_err(|error| Failure::database("the database could not be asked", error))?;
    // Where there is no lane at all, verifying says it. Where there is another, it would name a hundred things that are missing.
    if let Some(lane) = lanes.iter().find(|lane| !installed.is_empty() && !installed.contains(lane)) {
        let lane = lane.name();
        return Err(Failure::no(format!(
            "the {lane} lane is not installed in this database, so nothing is served"
        ))
        .hint(format!("install it with: symphony install --lane {lane}")));
    }
    let differences = schema::verify(client, lanes).await?;
    let (errors, warnings): (Vec<_>, Vec<_>) = differences.iter().partition(|difference| difference.is_error());
    for difference in warnings.iter().take(MAX_LOGGED_WARNINGS) {
        tracing::warn!(
            difference = plain(&difference.to_string()),
            "the database differs from what this program expects; work goes on"
        );
    }
    if let Some(more) = warnings.len().checked_sub(MAX_LOGGED_WARNINGS).filter(|more| *more > 0) {
        tracing::warn!(more, "there are more such differences; see them with: symphony verify");
    }
    if errors.is_empty() {
        return Ok(());
    }
    let mut message = String::from("the schema is not what this program expects, so nothing is served:");
    for difference in &errors {
        // Writing to a String cannot fail.
        let _ = write!(message, "\n  {}", plain(&difference.to_string()));
    }
    Err(Failure::no(message).hint("see it with: symphony verify; mend it with: symphony install"))
}

/// Refuses a login that may not do what it must.
pub(crate) async fn roles(client: &Client) -> Result<(), Failure> {
    let missing = rights::missing_roles(client, &ROLES).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(Failure::no(format!("the login that the relayer connects as lacks a role: {missing}"))
        .hint(format!("let a DBA run: grant {missing} to the login that you connect as")))
}

/// Refuses a section for a rail that was never registered, and tells of rails whose payments would wait. `only_check` is whether nothing is started:
/// then that is a refusal too.
///
/// A start must not fail for what an operator can do to the database while the fleet runs: registering a rail, or retiring one.
pub(crate) async fn rails(client: &Client, serving: &Serving<'_>, only_check: bool) -> Result<(), Failure> {
    let all = reading::rails(client).await?;
    let names: BTreeSet<_> = all.iter().map(|rail| rail.rail_type.as_str()).collect();
    let registered: BTreeSet<_> =
        all.iter().filter(|rail| rail.is_registered()).map(|rail| rail.rail_type.as_str()).collect();
    let served: BTreeSet<_> = serving.rails.iter().map(|(name, _)| *name).collect();
    let unknown: Vec<_> = served.difference(&names).copied().collect();
    if !unknown.is_empty() {
        return Err(Failure::no(format!(
            "these rails have a section but are not registered: {}",
            unknown.join(", ")
        ))
        .hint("check the spelling, or register each with: symphony rail add NAME --actor … --reason …"));
    }
    for rail in served.difference(&registered) {
        tracing::warn!(
            event = "RETIRED_RAIL",
            rail,
            "this rail has a section but was retired: nothing more can be enqueued to it"
        );
    }
    let unserved: Vec<_> = registered.difference(&served).copied().collect();
    if !unserved.is_empty() && serving.unserved == UnservedRails::Warn {
        if only_check {
            let unserved = unserved.join(", ");
            return Err(Failure::no(format!(
                "these rails are registered but have no section in the settings, so what is enqueued there would wait: {unserved}"
            ))
            .hint(
                "add [rails.NAME] for each; retire a mistyped one with: symphony rail retire NAME; if another relayer serves \
                 them, set payment.unserved_rails = \"allow\"",
            ));
        }
        for rail in unserved {
            tracing::warn!(
                event = "UNSERVED_RAIL",
                rail,
                "this rail is registered and has no section in the settings: what is enqueued there waits"
            );
        }
    }
    for (name, can_be_asked) in &serving.rails {
        let policy = all.iter().find(|rail| rail.rail_type == *name).map(|rail| rail.on_unknown);
        if !can_be_asked && policy == Some(OnUnknown::Inquire) {
            tracing::warn!(
                rail = name,
                "this rail is to be asked about unknown outcomes and cannot be: each of them goes to people"
            );
        }
    }
    Ok(())
}
