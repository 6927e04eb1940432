//! Compares a database with this build and names every difference.

use std::{collections::BTreeSet, fmt};

use serde::Serialize;
use tokio_postgres::{Client, Transaction};

use super::{
    Lane,
    catalogue::{self, Facts},
    guard::{self, Refusal},
    migrations,
};

/// One way in which the database is not what this build makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "difference", rename_all = "snake_case")]
pub enum Difference {
    /// It should be there and is not.
    Missing {
        /// What is missing.
        object: String,
    },
    /// It is there and should not be.
    Unexpected {
        /// What is too much.
        object: String,
    },
    /// It is there and is not as it should be.
    Changed {
        /// What was changed.
        object: String,
        /// Which of its facts.
        facet: String,
        /// What this build expects; none where the fact should not exist.
        expected: Option<String>,
        /// What is there.
        found: Option<String>,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { object } => write!(f, "missing: {object}"),
            Self::Unexpected { object } => write!(f, "unexpected: {object}"),
            Self::Changed { object, facet, expected, found } => write!(
                f,
                "changed: {object}: {facet} is {}, should be {}",
                found.as_deref().unwrap_or("absent"),
                expected.as_deref().unwrap_or("absent"),
            ),
        }
    }
}

/// Why nothing could be compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no schema to compare with.
    #[error("Symphony is not installed in this database; run: symphony install")]
    NotInstalled,
    /// A stranger's code would run, or another session holds a lock for too long.
    #[error(transparent)]
    Refused(Refusal),
    /// The connection or a statement failed.
    #[error("the database could not be asked")]
    Database(#[source] tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Refusal::of(error).map_or_else(Self::Database, Self::Refused)
    }
}

/// Compares the catalogue with what this build expects of `lanes`. Needs no rights beyond connecting; which migrations were
/// applied is compared where the login may read it, see [`migrations::are_readable`].
///
/// # Errors
/// See [`Error`]. A difference is not an error here.
pub async fn verify(client: &mut Client, lanes: &[Lane]) -> Result<Vec<Difference>, Error> {
    let transaction = catalogue::begin(client).await?;
    let differences = verify_in(&transaction, lanes).await?;
    transaction.rollback().await?;
    Ok(differences)
}

/// The same for a transaction that holds the lock of an install and whose search_path is pinned.
pub(super) async fn verify_in(transaction: &Transaction<'_>, lanes: &[Lane]) -> Result<Vec<Difference>, Error> {
    guard::guard_in(transaction).await?;
    if catalogue::lanes(transaction).await?.is_empty() {
        return Err(Error::NotInstalled);
    }
    let (found, major) = catalogue::found_in(transaction).await?;
    let (mut expected, mut found) = (catalogue::expected(lanes, major), catalogue::about(lanes, found, major));
    if migrations::are_readable(transaction).await? {
        expected.extend(migrations::expected(lanes));
        found.extend(migrations::found(transaction, lanes).await?);
    }
    Ok(compare(&expected, &found))
}

fn compare(expected: &Facts, found: &Facts) -> Vec<Difference> {
    let objects = |facts: &Facts| facts.keys().map(|(object, _)| object.clone()).collect::<BTreeSet<_>>();
    let (wanted, there) = (objects(expected), objects(found));

    let mut differences: Vec<_> =
        wanted.difference(&there).map(|object| Difference::Missing { object: object.clone() }).collect();
    differences.extend(there.difference(&wanted).map(|object| Difference::Unexpected { object: object.clone() }));
    for key in expected.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
        let (object, facet) = key;
        let (should_be, is) = (expected.get(key), found.get(key));
        if should_be != is && wanted.contains(object) && there.contains(object) {
            differences.push(Difference::Changed {
                object: object.clone(),
                facet: facet.clone(),
                expected: should_be.cloned(),
                found: is.cloned(),
            });
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(of: &[(&str, &str, &str)]) -> Facts {
        of.iter().map(|(object, facet, value)| (((*object).into(), (*facet).into()), (*value).into())).collect()
    }

    #[test]
    fn what_is_missing_unexpected_or_changed_is_named_once_each() {
        let expected = facts(&[("a", "owner", "x"), ("a", "body", "1"), ("b", "owner", "x")]);
        let found = facts(&[("a", "owner", "y"), ("a", "body", "1"), ("c", "owner", "x"), ("c", "body", "2")]);
        let said: Vec<_> = compare(&expected, &found).iter().map(ToString::to_string).collect();
        assert_eq!(said, ["missing: b", "unexpected: c", "changed: a: owner is y, should be x"]);
    }

    #[test]
    fn the_same_facts_do_not_differ() {
        let same = facts(&[("a", "owner", "x")]);
        assert_eq!(compare(&same, &same), []);
    }
}
