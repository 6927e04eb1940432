//! The migrations that the database recorded, as facts to compare: an edited, added or removed row is a difference.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use tokio_postgres::GenericClient;

use super::{
    Lane, VERSION,
    catalogue::{Expected, Fact, Facts, Key},
    files::{self, File},
    verify::Severity,
};

// The view is for readers. A login without that privilege skips this check, and the caller reports that.
const READABLE: &str = "\
    select pg_catalog.has_schema_privilege(n.oid, 'usage') and pg_catalog.has_table_privilege(c.oid, 'select') \
    from pg_catalog.pg_class c \
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
    where n.nspname = 'symphony' and c.relname = 'applied_migrations'";
const ROWS: &str = "select lane, migration, sha256, schema_version from symphony.applied_migrations";

/// The hash that the database records for a migration.
pub(super) fn sha256(migration: &File) -> String {
    Sha256::digest(migration.text).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Whether this login may read which migrations were applied.
///
/// # Errors
/// If the query fails.
pub async fn are_readable(client: &impl GenericClient) -> Result<bool, tokio_postgres::Error> {
    Ok(client.query_typed(READABLE, &[]).await?.first().is_some_and(|row| row.get(0)))
}

/// The rows that `lanes` should have.
pub(super) fn expected(lanes: &[Lane]) -> Expected {
    let core = [&files::CORE];
    let all = core.into_iter().chain(lanes.iter().map(|lane| files::component(*lane)));
    all.flat_map(|component| {
        component
            .migrations
            .iter()
            .flat_map(|migration| facts(component.name, migration.stem(), sha256(migration), VERSION))
    })
    .map(|(key, value)| (key, [value].into()))
    .collect()
}

/// The rows that the database has, without those of other known lanes. Call it after the guard.
pub(super) async fn found(client: &impl GenericClient, lanes: &[Lane]) -> Result<Facts, tokio_postgres::Error> {
    let mut found = Facts::new();
    for row in client.query_typed(ROWS, &[]).await? {
        let (lane, migration): (String, String) = (row.get(0), row.get(1));
        let is_another = lane.parse::<Lane>().is_ok_and(|lane| !lanes.contains(&lane));
        if !is_another {
            let error =
                |value| Fact { schema: Some(files::CORE.schema.to_owned()), value, severity: Severity::Error };
            let facts = facts(&lane, &migration, row.get(2), row.get(3));
            found.extend(facts.map(|(key, value)| (key, error(value))));
        }
    }
    Ok(found)
}

fn facts(lane: &str, migration: &str, sha256: String, version: i32) -> [(Key, String); 2] {
    let object = format!("applied migration {lane}/{migration}");
    let hash = ((object.clone(), "sha256".to_owned()), sha256);
    [hash, ((object, "schema version".to_owned()), version.to_string())]
}
