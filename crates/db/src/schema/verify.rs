//! Compares a database with this build and reports every difference.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Serialize;
use tokio_postgres::{Client, Transaction};

use super::{
    Lane,
    catalogue::{self, Expected, Facts},
    guard::{self, Refusal},
    migrations,
};

/// How severe a difference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It does not affect the guarantees, but an operator should know of it.
    Warning,
    /// It affects the guarantees or the privileges: a relayer does not start.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One difference between the database and this build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its severity.
    pub severity: Severity,
    /// What differs.
    #[serde(flatten)]
    pub change: Change,
}

impl Difference {
    /// Whether a relayer refuses to start because of it.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.change.fmt(f)
    }
}

/// What differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "difference", rename_all = "snake_case")]
pub enum Change {
    /// An expected object does not exist.
    Missing {
        /// The missing object.
        object: String,
    },
    /// An object exists that this build does not expect.
    Unexpected {
        /// The unexpected object.
        object: String,
    },
    /// An object differs from what this build expects.
    Changed {
        /// The changed object.
        object: String,
        /// The facet that differs.
        facet: String,
        /// The expected value; none if this build expects no such facet.
        expected: Option<String>,
        /// The value in the database; none if it has no such facet.
        found: Option<String>,
    },
}

impl fmt::Display for Change {
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

/// Why the comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Symphony's schema does not exist.
    #[error("Symphony is not installed in this database; run: symphony install")]
    NotInstalled,
    /// Another owner's code would run, or another session held a lock for too long.
    #[error(transparent)]
    Refused(Refusal),
    /// The connection or a statement failed.
    #[error("a database query failed")]
    Database(#[source] tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Refusal::of(error).map_or_else(Self::Database, Self::Refused)
    }
}

/// Compares the system catalogue with what this build expects of `lanes`. Needs no privilege but CONNECT. It compares
/// the applied migrations only if the login may read them, see [`migrations::are_readable`].
///
/// # Errors
/// See [`Error`]. A difference is not an error here.
pub async fn verify(client: &mut Client, lanes: &[Lane]) -> Result<Vec<Difference>, Error> {
    let transaction = catalogue::begin(client).await?;
    let differences = verify_in(&transaction, lanes).await?;
    transaction.rollback().await?;
    Ok(differences)
}

/// The same in a transaction that holds the install lock and whose search_path is pinned.
pub(super) async fn verify_in(transaction: &Transaction<'_>, lanes: &[Lane]) -> Result<Vec<Difference>, Error> {
    guard::guard_in(transaction).await?;
    let installed = catalogue::lanes(transaction).await?;
    if installed.is_empty() {
        return Err(Error::NotInstalled);
    }
    let (found, major) = catalogue::found_in(transaction).await?;
    let (mut expected, mut found) = catalogue::expected_and_found(lanes, &installed, found, major);
    if migrations::are_readable(transaction).await? {
        expected.extend(migrations::expected(lanes));
        found.extend(migrations::found(transaction, lanes).await?);
    }
    Ok(compare(&expected, &found))
}

/// Lists the differences, errors first.
fn compare(expected: &Expected, found: &Facts) -> Vec<Difference> {
    let wanted: BTreeSet<_> = expected.keys().map(|(object, _)| object).collect();
    // An unexpected object has the highest severity of its facts.
    let mut present: BTreeMap<&String, Severity> = BTreeMap::new();
    for ((object, _), fact) in found {
        let severity = present.entry(object).or_insert(fact.severity);
        *severity = fact.severity.max(*severity);
    }

    let mut differences = Vec::new();
    for object in wanted.iter().filter(|object| !present.contains_key(*object)) {
        let change = Change::Missing { object: (*object).clone() };
        differences.push(Difference { severity: Severity::Error, change });
    }
    for (object, severity) in present.iter().filter(|(object, _)| !wanted.contains(*object)) {
        let change = Change::Unexpected { object: (*object).clone() };
        differences.push(Difference { severity: *severity, change });
    }
    for key in expected.keys().chain(found.keys()).collect::<BTreeSet<_>>() {
        let (object, facet) = key;
        let (should_be, is) = (expected.get(key), found.get(key));
        let same = should_be.zip(is).is_some_and(|(values, fact)| values.contains(&fact.value));
        if same || !wanted.contains(object) || !present.contains_key(object) {
            continue;
        }
        let change = Change::Changed {
            object: object.clone(),
            facet: facet.clone(),
            expected: should_be.map(|values| values.iter().cloned().collect::<Vec<_>>().join(" or ")),
            found: is.map(|fact| fact.value.clone()),
        };
        differences.push(Difference { severity: is.map_or(Severity::Error, |fact| fact.severity), change });
    }
    differences.sort_by_key(|difference| std::cmp::Reverse(difference.severity));
    differences
}

#[cfg(test)]
mod tests {
    use super::{super::catalogue::Fact, *};

    fn expected(of: &[(&str, &str, &[&str])]) -> Expected {
        of.iter()
            .map(|(object, facet, values)| {
                (((*object).into(), (*facet).into()), values.iter().copied().map(String::from).collect())
            })
            .collect()
    }

    fn found(of: &[(&str, &str, &str, Severity)]) -> Facts {
        let fact = |value: &str, severity| Fact { schema: None, value: value.into(), severity };
        of.iter()
            .map(|(object, facet, value, severity)| (((*object).into(), (*facet).into()), fact(value, *severity)))
            .collect()
    }

    fn messages(differences: &[Difference]) -> Vec<String> {
        differences.iter().map(|difference| format!("{}: {difference}", difference.severity)).collect()
    }

    #[test]
    fn what_is_missing_unexpected_or_changed_is_named_once_each() {
        let expected = expected(&[("a", "owner", &["x"]), ("a", "body", &["1"]), ("b", "owner", &["x"])]);
        let found = found(&[
            ("a", "owner", "y", Severity::Error),
            ("a", "body", "1", Severity::Error),
            ("c", "owner", "x", Severity::Error),
            ("c", "body", "2", Severity::Warning),
        ]);
        let messages = messages(&compare(&expected, &found));
        assert_eq!(
            messages,
            ["error: missing: b", "error: unexpected: c", "error: changed: a: owner is y, should be x"]
        );
    }

    #[test]
    fn a_warning_stays_one_and_comes_last() {
        let expected = expected(&[("b", "cost", &["1"]), ("b", "owner", &["x"])]);
        let found = found(&[
            ("a", "definition", "y", Severity::Warning),
            ("b", "cost", "2", Severity::Warning),
            ("b", "owner", "y", Severity::Error),
        ]);
        let messages = messages(&compare(&expected, &found));
        assert_eq!(
            messages,
            [
                "error: changed: b: owner is y, should be x",
                "warning: unexpected: a",
                "warning: changed: b: cost is 2, should be 1"
            ]
        );
    }

    #[test]
    fn any_of_several_printings_is_the_same_fact() {
        let expected = expected(&[("a", "definition", &["(x or y) or z", "x or y or z"])]);
        for value in ["x or y or z", "(x or y) or z"] {
            assert_eq!(compare(&expected, &found(&[("a", "definition", value, Severity::Error)])), []);
        }
        assert_eq!(compare(&expected, &found(&[("a", "definition", "x", Severity::Error)])).len(), 1);
    }
}
