//! Startup checks: refuse to start where every claim would fail or wait for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use symphony_db::epoch;
use symphony_db::payment::{OnUnknown, reader};
use symphony_db::roles;
use symphony_db::schema::install::installed_lanes;
use symphony_db::schema::{self, Lane};
use symphony_relay::rail::Rail;
use tokio_postgres::Client;

use crate::config::UnservedRails;
use crate::failure::Failure;
use symphony_console::sanitize::plain;

/// The only role that a relayer's login needs.
const ROLES: [&str; 1] = ["symphony_executor"];

/// Members of Symphony's roles can cause warnings, and must not be able to flood the log.
const MAX_LOGGED_WARNINGS: usize = 20;

/// The rails that this process serves.
pub(crate) struct Serving<'a> {
    /// The rails that have a section, and whether each supports inquiries.
    pub(crate) rails: Vec<(&'a str, bool)>,
    pub(crate) unserved: UnservedRails,
}

/// Refuses a database whose schema differs from this build. Differences that change no behaviour are logged.
pub(crate) async fn schema(client: &mut Client, lanes: &[Lane]) -> Result<(), Failure> {
    let asked = installed_lanes(client).await;
    let installed = asked.map_err(|error| Failure::database("the query failed", error))?;
    // Without any lane, verify says that nothing is installed. With another lane, it would list every missing object.
    if let Some(lane) = lanes.iter().find(|lane| !installed.is_empty() && !installed.contains(lane)) {
        let lane = lane.name();
        return Err(Failure::new(format!("cannot start: the {lane} lane is not installed in this database"))
            .hint(format!("install it with: symphony install --lane {lane}")));
    }
    let differences = schema::verify(client, lanes).await?;
    let (errors, warnings): (Vec<_>, Vec<_>) = differences.iter().partition(|difference| difference.is_error());
    for difference in warnings.iter().take(MAX_LOGGED_WARNINGS) {
        tracing::warn!(
            difference = plain(&difference.to_string()),
            "the schema differs from this build in a way that changes no behaviour; the relayer continues"
        );
    }
    if let Some(more) = warnings.len().checked_sub(MAX_LOGGED_WARNINGS).filter(|more| *more > 0) {
        tracing::warn!(more, "more schema differences are not logged; list them with: symphony verify");
    }
    if errors.is_empty() {
        return Ok(());
    }
    let mut message = String::from("cannot start: the schema differs from this build:");
    for difference in &errors {
        // Writing to a String cannot fail.
        let _ = write!(message, "\n  {}", plain(&difference.to_string()));
    }
    Err(Failure::new(message)
        .hint("list the differences with: symphony verify; repair them with: symphony install"))
}

/// Refuses a login that lacks a role.
pub(crate) async fn roles(client: &Client) -> Result<(), Failure> {
    let missing = roles::missing_roles(client, &ROLES).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(Failure::new(format!("the login that the relayer connects as lacks a role: {missing}"))
        .hint(format!("let a DBA run: grant {missing} to the login that you connect as")))
}

/// Warns where a failover may lose commits. A single server is no mistake, so it refuses nothing.
pub(crate) async fn replication(client: &Client) -> Result<(), Failure> {
    if !epoch::waits_for_standby(client).await? {
        tracing::warn!(
            event = "NO_SYNCHRONOUS_STANDBY",
            "synchronous_standby_names is empty: a failover may lose the last commits. Payments may have been made that have no row; \
             those with a row are inquired about before they are sent again"
        );
    }
    Ok(())
}

/// Warns of a restored, copied or promoted database that no claim has reached. The first claim opens the epoch.
pub(crate) async fn epoch(client: &Client) -> Result<(), Failure> {
    if !epoch::is_of_this_server(client).await? {
        tracing::warn!(
            event = "EPOCH_OF_ANOTHER_SERVER",
            "the newest epoch is of another server, or of another timeline: the database was restored, copied or promoted. Before \
             producers start, open an epoch with: symphony recover open"
        );
    }
    Ok(())
}

/// Warns of rails that cannot get what a dispatch needs, such as an access token. The bank may be down for a while, so it
/// refuses nothing.
pub(crate) async fn credentials(rails: &BTreeMap<String, Arc<dyn Rail>>) {
    for (name, rail) in rails {
        if let Err(why) = rail.check().await {
            tracing::warn!(
                event = "CREDENTIALS_UNAVAILABLE",
                rail = name,
                reason = plain(&why),
                "the rail cannot get what it needs to dispatch: its payments would be retried until it can"
            );
        }
    }
}

/// Refuses a section for a rail that was never registered, and warns of registered rails without a section.
///
/// With `only_check`, as in `run --check`, a rail without a section is an error too. A real start only warns: it must
/// not fail because an operator registered or retired a rail.
pub(crate) async fn rails(client: &Client, serving: &Serving<'_>, only_check: bool) -> Result<(), Failure> {
    let all = reader::rails(client).await?;
    let names: BTreeSet<_> = all.iter().map(|rail| rail.rail_type.as_str()).collect();
    let registered: BTreeSet<_> =
        all.iter().filter(|rail| rail.is_registered()).map(|rail| rail.rail_type.as_str()).collect();
    let served: BTreeSet<_> = serving.rails.iter().map(|(name, _)| *name).collect();
    let unknown: Vec<_> = served.difference(&names).copied().collect();
    if !unknown.is_empty() {
        return Err(Failure::new(format!(
            "the settings have a section for rails that are not registered: {}",
            unknown.join(", ")
        ))
        .hint("check the spelling, or register each with: symphony rail add NAME --actor … --reason …"));
    }
    for rail in served.difference(&registered) {
        tracing::warn!(
            event = "RETIRED_RAIL",
            rail,
            "a retired rail has a section in the settings: producers cannot enqueue to it"
        );
    }
    let unserved: Vec<_> = registered.difference(&served).copied().collect();
    if !unserved.is_empty() && serving.unserved == UnservedRails::Warn {
        if only_check {
            let unserved = unserved.join(", ");
            return Err(Failure::new(format!(
                "registered rails have no section in the settings, so their payments would wait: {unserved}"
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
                "a registered rail has no section in the settings: its payments wait"
            );
        }
    }
    for (name, can_be_asked) in &serving.rails {
        let policy = all.iter().find(|rail| rail.rail_type == *name).map(|rail| rail.on_unknown);
        if !can_be_asked && policy == Some(OnUnknown::Inquire) {
            tracing::warn!(
                rail = name,
                "the rail's policy is INQUIRE but its settings support no inquiry: each unknown outcome becomes a dead letter"
            );
        }
    }
    Ok(())
}
