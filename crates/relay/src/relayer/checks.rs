//! Startup checks: reasons not to start, because every claim would fail or wait for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use symphony_db::error::DatabaseError;
use symphony_db::payment::{OnUnknown, reader};
use symphony_db::roles;
use symphony_db::schema::install::installed_lanes;
use symphony_db::schema::verify::{self, Difference};
use symphony_db::schema::{self, Lane};
use tokio_postgres::Client;

/// The only role that a relayer's login needs.
const ROLES: [&str; 1] = ["symphony_executor"];

/// Why a relayer must not start.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// Install it with `symphony install --lane`.
    #[error("cannot start: the {} lane is not installed in this database", .0.name())]
    LaneNotInstalled(Lane),
    /// List the differences with `symphony verify`; repair them with `symphony install`.
    #[error("cannot start: the schema differs from this build:{}", Lines(.0))]
    SchemaDiffers(Vec<Difference>),
    /// The schema cannot be verified: Symphony is not installed, or an object of another owner stands in its place.
    #[error(transparent)]
    Verify(#[from] verify::Error),
    /// Let a DBA grant it.
    #[error("the login that the relayer connects as lacks a role: {}", .0.join(", "))]
    MissingRoles(Vec<String>),
    /// Check the spelling, or register each with `symphony rail add`.
    #[error("rails are served that are not registered: {}", .0.join(", "))]
    UnknownRails(Vec<String>),
    /// The database refused a query, or was lost.
    #[error("the query failed")]
    Database(#[from] DatabaseError),
    /// The database refused a query, or was lost.
    #[error("the query failed")]
    Query(#[from] tokio_postgres::Error),
}

/// Refuses a database whose schema differs from this build. Returns the differences that change no behaviour.
///
/// # Errors
///
/// See [`CheckError`].
pub async fn schema(client: &mut Client, lanes: &[Lane]) -> Result<Vec<Difference>, CheckError> {
    let installed = installed_lanes(client).await?;
    // Without any lane, verify says that nothing is installed. With another lane, it would list every missing object.
    if let Some(lane) = lanes.iter().find(|lane| !installed.is_empty() && !installed.contains(lane)) {
        return Err(CheckError::LaneNotInstalled(*lane));
    }
    let differences = schema::verify(client, lanes).await?;
    let (errors, warnings): (Vec<_>, Vec<_>) = differences.into_iter().partition(Difference::is_error);
    if errors.is_empty() { Ok(warnings) } else { Err(CheckError::SchemaDiffers(errors)) }
}

/// Refuses a login that lacks a role.
///
/// # Errors
///
/// See [`CheckError`].
pub async fn roles(client: &Client) -> Result<(), CheckError> {
    let missing = roles::missing_roles(client, &ROLES).await?;
    if missing.is_empty() { Ok(()) } else { Err(CheckError::MissingRoles(missing)) }
}

/// What is noteworthy about the rails, and no reason not to start.
#[derive(Debug)]
pub struct FoundRails {
    /// Served, and retired: producers cannot enqueue to them.
    pub retired: Vec<String>,
    /// Registered, and not served here: their payments wait, unless another relayer serves them.
    pub unserved: Vec<String>,
    /// Their policy is to inquire, and they support no inquiry: each unknown outcome becomes a dead letter.
    pub without_inquiry: Vec<String>,
}

/// Refuses to serve a rail that was never registered. `served` says whether each rail supports inquiries.
///
/// # Errors
///
/// See [`CheckError`].
pub async fn rails(client: &Client, served: &BTreeMap<String, bool>) -> Result<FoundRails, CheckError> {
    let all = reader::rails(client).await?;
    let names: BTreeSet<_> = all.iter().map(|rail| rail.rail_type.as_str()).collect();
    let unknown: Vec<_> = served.keys().filter(|name| !names.contains(name.as_str())).cloned().collect();
    if !unknown.is_empty() {
        return Err(CheckError::UnknownRails(unknown));
    }
    let mut found = FoundRails { retired: Vec::new(), unserved: Vec::new(), without_inquiry: Vec::new() };
    for rail in all {
        let supports_inquiry = served.get(&rail.rail_type);
        let place = match (supports_inquiry, rail.is_registered()) {
            (Some(_), false) => &mut found.retired,
            (None, true) => &mut found.unserved,
            (Some(false), true) if rail.on_unknown == OnUnknown::Inquire => &mut found.without_inquiry,
            (Some(_), true) | (None, false) => continue,
        };
        place.push(rail.rail_type);
    }
    Ok(found)
}

/// One difference per line. Names of objects are untrusted: a line break in one must not look like another difference.
struct Lines<'a>(&'a [Difference]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |difference: &Difference| difference.to_string().replace(char::is_control, "\u{fffd}");
        self.0.iter().try_for_each(|difference| write!(f, "\n  {}", plain(difference)))
    }
}
