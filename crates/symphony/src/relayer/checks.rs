//! The startup checks of [`symphony_relay::relayer::checks`], with what a user of the program does about each, and the
//! warnings of `run --check`.

use std::collections::BTreeMap;
use std::sync::Arc;

use symphony_console::sanitize::plain;
use symphony_db::epoch;
use symphony_db::schema::Lane;
use symphony_relay::rail::Rail;
use symphony_relay::relayer::checks::{self, CheckError};
use tokio_postgres::Client;

use crate::config::UnservedRails;
use crate::failure::Failure;

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
    let warnings = checks::schema(client, lanes).await?;
    for difference in warnings.iter().take(MAX_LOGGED_WARNINGS) {
        tracing::warn!(
            difference = plain(&difference.to_string()),
            "the schema differs from this build in a way that changes no behaviour; the relayer continues"
        );
    }
    if let Some(more) = warnings.len().checked_sub(MAX_LOGGED_WARNINGS).filter(|more| *more > 0) {
        tracing::warn!(more, "more schema differences are not logged; list them with: symphony verify");
    }
    Ok(())
}

/// Refuses a login that lacks a role.
pub(crate) async fn roles(client: &Client) -> Result<(), Failure> {
    Ok(checks::roles(client).await?)
}

impl From<CheckError> for Failure {
    fn from(error: CheckError) -> Self {
        let message = error.to_string();
        match error {
            CheckError::LaneNotInstalled(lane) => {
                Self::new(message).hint(format!("install it with: symphony install --lane {}", lane.name()))
            }
            CheckError::SchemaDiffers(_) => Self::new(message)
                .hint("list the differences with: symphony verify; repair them with: symphony install"),
            CheckError::Verify(error) => error.into(),
            CheckError::MissingRoles(roles) => Self::new(message)
                .hint(format!("let a DBA run: grant {} to the login that you connect as", roles.join(", "))),
            CheckError::UnknownRails(rails) => Self::new(format!(
                "the settings have a section for rails that are not registered: {}",
                rails.join(", ")
            ))
            .hint("check the spelling, or register each with: symphony rail add NAME --actor … --reason …"),
            CheckError::Database(error) => error.into(),
            CheckError::Query(error) => Self::database("the query failed", error),
        }
    }
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
    let served = serving.rails.iter().map(|(name, can_be_asked)| ((*name).to_owned(), *can_be_asked)).collect();
    let found = checks::rails(client, &served).await?;
    for rail in found.retired {
        tracing::warn!(
            event = "RETIRED_RAIL",
            rail,
            "a retired rail has a section in the settings: producers cannot enqueue to it"
        );
    }
    if !found.unserved.is_empty() && serving.unserved == UnservedRails::Warn {
        if only_check {
            let unserved = found.unserved.join(", ");
            return Err(Failure::new(format!(
                "registered rails have no section in the settings, so their payments would wait: {unserved}"
            ))
            .hint(
                "add [rails.NAME] for each; retire a mistyped one with: symphony rail retire NAME; if another relayer serves \
                 them, set payment.unserved_rails = \"allow\"",
            ));
        }
        for rail in found.unserved {
            tracing::warn!(
                event = "UNSERVED_RAIL",
                rail,
                "a registered rail has no section in the settings: its payments wait"
            );
        }
    }
    for rail in found.without_inquiry {
        tracing::warn!(
            rail,
            "the rail's policy is INQUIRE but its settings support no inquiry: each unknown outcome becomes a dead letter"
        );
    }
    Ok(())
}
