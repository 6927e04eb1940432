//! Facts about the installed objects: those that this build expects, and those in the system catalogue.
//!
//! The expected facts are in `schema/catalogue/`, one file for the core and one per lane. Each line has the PostgreSQL
//! versions, the object, the facet and its value, separated by tabs. `scripts/catalogue` writes them. A fact may have
//! several values, because PostgreSQL prints some expressions differently after a dump and restore.
//!
//! The ledger has more partitions every week. The files have the facts of one, named [`ANY_PARTITION`]; they are
//! expected of each partition that a database has.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::{Client, GenericClient, Row, Transaction, types::Type};

use super::{Lane, files, guard::PIN, lock, verify::Severity};

/// The subject of a fact: an object, and one of its facets.
pub type Key = (String, String);

/// The values that each fact may have.
pub type Expected = BTreeMap<Key, BTreeSet<String>>;

/// The facts that were found.
pub type Facts = BTreeMap<Key, Fact>;

/// One fact that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The schema that it belongs to; none if it concerns the whole database.
    pub schema: Option<String>,
    /// Its value.
    pub value: String,
    /// The severity if the value is not expected.
    pub severity: Severity,
}

const CORE: &str = include_str!("../../schema/catalogue/core.txt");

const fn text(lane: Lane) -> &'static str {
    match lane {
        Lane::Payment => include_str!("../../schema/catalogue/payment.txt"),
        Lane::Event => include_str!("../../schema/catalogue/event.txt"),
        Lane::Metadata => include_str!("../../schema/catalogue/metadata.txt"),
    }
}

/// The facts that `lanes` should have on PostgreSQL `major`, with these partitions of the ledger.
fn expected(lanes: &[Lane], major: u32, partitions: &[String]) -> Expected {
    let texts = lanes.iter().map(|lane| text(*lane));
    let mut expected = Expected::new();
    for (key, value) in [CORE].into_iter().chain(texts).flat_map(|text| facts(text, major, partitions)) {
        expected.entry(key).or_default().insert(value);
    }
    expected
}

/// The expected facts of `lanes`, and the found ones that concern them. See [`about`].
pub(super) fn expected_and_found(
    lanes: &[Lane],
    installed: &[Lane],
    found: Facts,
    major: u32,
) -> (Expected, Facts) {
    let partitions = partitions(&found);
    (expected(lanes, major, &partitions), about(lanes, installed, found, major, &partitions))
}

/// The found facts that concern `lanes`: without those of other `installed` lanes.
///
/// An object in the schema of another installed lane belongs to that lane. In a schema that lanes share, an object that
/// no lane expects concerns all of them. So does an object that looks like one of a lane that is not installed: it was
/// planted.
fn about(lanes: &[Lane], installed: &[Lane], found: Facts, major: u32, partitions: &[String]) -> Facts {
    let others: Vec<_> = installed.iter().copied().filter(|lane| !lanes.contains(lane)).collect();
    let core = files::CORE.schema;
    let elsewhere: Vec<_> =
        others.iter().map(|lane| files::component(*lane).schema).filter(|schema| *schema != core).collect();
    let theirs: BTreeSet<String> = others
        .iter()
        .flat_map(|lane| facts(text(*lane), major, partitions))
        .map(|((object, _), _)| object)
        .collect();
    let is_theirs = |object: &str, fact: &Fact| {
        theirs.contains(object) || fact.schema.as_deref().is_some_and(|schema| elsewhere.contains(&schema))
    };
    found.into_iter().filter(|((object, _), fact)| !is_theirs(object, fact)).collect()
}

/// Stands for each partition of the ledger.
pub const ANY_PARTITION: &str = "payment_outbox_attempts_from_*";

/// The partitions of the ledger, by their names.
fn partitions(found: &Facts) -> Vec<String> {
    let table = |object: &String| object.strip_prefix("table symphony.").map(str::to_owned);
    found.keys().filter(|(_, facet)| facet == "partition of").filter_map(|(object, _)| table(object)).collect()
}

/// The facts with [`ANY_PARTITION`] in place of each partition. For a database whose partitions are alike.
#[must_use]
pub fn with_any_partition(found: Facts) -> Facts {
    let partitions = partitions(&found);
    let general =
        |text: &str| partitions.iter().fold(text.to_owned(), |text, name| text.replace(name, ANY_PARTITION));
    found
        .into_iter()
        .map(|((object, facet), fact)| {
            ((general(&object), general(&facet)), Fact { value: general(&fact.value), ..fact })
        })
        .collect()
}

/// The facts of a file that hold on PostgreSQL `major`, those of [`ANY_PARTITION`] for each of these.
fn facts(text: &str, major: u32, partitions: &[String]) -> Vec<(Key, String)> {
    let mut facts = Vec::new();
    for ((object, facet), value) in text.lines().filter_map(|line| fact(line, major)) {
        if object.contains(ANY_PARTITION) {
            let named = |text: &str, name: &str| text.replace(ANY_PARTITION, name);
            facts.extend(
                partitions.iter().map(|name| ((named(&object, name), facet.clone()), named(&value, name))),
            );
        } else {
            facts.push(((object, facet), value));
        }
    }
    facts
}

fn fact(line: &str, major: u32) -> Option<(Key, String)> {
    let mut fields = line.splitn(4, '\t');
    let (first, last) = fields.next()?.split_once('-')?;
    let holds = first.parse::<u32>().ok()?..=last.parse().ok()?;
    // Later versions are expected to match the newest known one.
    if !holds.contains(&major.min(NEWEST)) {
        return None;
    }
    Some(((fields.next()?.to_owned(), fields.next()?.to_owned()), fields.next()?.to_owned()))
}

/// The newest major version of PostgreSQL that the expected facts were read from.
const NEWEST: u32 = 18;

/// The facts in the system catalogue, and the server's major version. Waits for a running install.
///
/// # Errors
/// If a query fails.
pub async fn found(client: &mut Client) -> Result<(Facts, u32), tokio_postgres::Error> {
    let transaction = begin(client).await?;
    let facts = found_in(&transaction).await?;
    transaction.rollback().await?;
    Ok(facts)
}

/// A read-only transaction that waited for a running install.
pub(super) async fn begin(client: &mut Client) -> Result<Transaction<'_>, tokio_postgres::Error> {
    let transaction = client.build_transaction().read_only(true).start().await?;
    transaction.batch_execute(PIN).await?;
    // Printing definitions locks the tables one by one, and an install locks them in another order: without the install
    // lock the two could deadlock.
    transaction.batch_execute(&lock::take_shared(lock::LOCK_TIMEOUT)).await?;
    Ok(transaction)
}

/// The same in a transaction that already holds the lock. Sets its search_path.
pub(super) async fn found_in(transaction: &Transaction<'_>) -> Result<(Facts, u32), tokio_postgres::Error> {
    // PostgreSQL prints names with their schema unless it is on the path.
    transaction.batch_execute("set local search_path = pg_catalog, pg_temp").await?;
    let version = transaction
        .query_typed("select current_setting('server_version_num')::int4 / 10000", &[])
        .await?
        .first()
        .map_or(0, |row| row.get::<_, i32>(0));
    let mut facts = Facts::new();
    for query in files::FACTS {
        let rows = transaction.query_typed(query.text, &[]).await?;
        facts.extend(rows.iter().map(|row| ((row.get(1), row.get(2)), fact_of(row))));
    }
    Ok((facts, u32::try_from(version).unwrap_or(0)))
}

fn fact_of(row: &Row) -> Fact {
    let value: Option<&str> = row.get(3);
    // On one line, as in the files.
    let words: Vec<_> = value.unwrap_or("none").split_ascii_whitespace().collect();
    let severity = if row.get::<_, &str>(4) == "warning" { Severity::Warning } else { Severity::Error };
    Fact { schema: row.get(0), value: words.join(" "), severity }
}

// Not to_regclass, which needs USAGE on the schema: this check needs no privilege. The schema m10_recovery may belong
// to another application, so its owner counts.
const HAS_TABLE: &str = "\
    select exists ( \
      select from pg_catalog.pg_class c \
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
      join pg_catalog.pg_roles o on o.oid = n.nspowner \
      where n.nspname = $1 and c.relname = $2 \
        and (n.nspname = 'symphony' or o.rolname = 'symphony_control'))";

/// The lanes whose main table exists.
pub(super) async fn lanes(client: &impl GenericClient) -> Result<Vec<Lane>, tokio_postgres::Error> {
    let mut installed = Vec::new();
    for lane in Lane::ALL {
        let table = match lane {
            Lane::Payment => "payment_outbox_pending",
            Lane::Event => "outbox",
            Lane::Metadata => "metadata_outbox",
        };
        let schema = files::component(lane).schema;
        let rows = client.query_typed(HAS_TABLE, &[(&schema, Type::TEXT), (&table, Type::TEXT)]).await?;
        if rows.first().is_some_and(|row| row.get(0)) {
            installed.push(lane);
        }
    }
    Ok(installed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_holds_for_its_versions_only() {
        let line = "15-17\tfunction f()\tbody\tabc";
        assert!(fact(line, 15).is_some() && fact(line, 17).is_some());
        assert!(fact(line, 18).is_none() && fact(line, 19).is_none());
    }

    #[test]
    fn every_line_of_the_expected_facts_is_parsed() {
        for line in [CORE].into_iter().chain(Lane::ALL.map(text)).flat_map(str::lines) {
            assert!((15..=18).any(|major| fact(line, major).is_some()), "{line}");
        }
    }

    fn found(of: &[(&str, Option<&str>)]) -> Facts {
        let fact = |schema: &Option<&str>| Fact {
            schema: schema.map(str::to_owned),
            value: "x".into(),
            severity: Severity::Error,
        };
        of.iter().map(|(object, schema)| (((*object).into(), "owner".into()), fact(schema))).collect()
    }

    #[test]
    fn what_is_of_another_installed_lane_is_no_difference_of_this_one() {
        let payment = ("table symphony.payment_outbox_pending", Some("symphony"));
        let event = [
            ("schema m10_recovery", Some("m10_recovery")),
            ("column m10_recovery.outbox.next_retry_at", Some("m10_recovery")),
            ("right of PUBLIC to EXECUTE on function m10_recovery.f()", Some("m10_recovery")),
        ];
        let core = ("function symphony.planted()", Some("symphony"));
        let all = found(&[&event[..], &[payment, core]].concat());
        assert_eq!(about(&[Lane::Payment], &Lane::ALL, all.clone(), 18, &[]), found(&[payment, core]));
        assert_eq!(
            about(&[Lane::Event], &Lane::ALL, all.clone(), 18, &[]),
            found(&[&event[..], &[core]].concat())
        );
        assert_eq!(about(&Lane::ALL, &Lane::ALL, all.clone(), 18, &[]), all);
    }

    #[test]
    fn what_only_looks_like_another_lane_is_a_difference() {
        let planted = found(&[
            ("trigger \"x m10_recovery.\" on symphony.payment_outbox_pending", Some("symphony")),
            ("schema m10_recovery", Some("m10_recovery")),
            ("table symphony.metadata_outbox", Some("symphony")),
        ]);
        assert_eq!(about(&[Lane::Payment], &[Lane::Payment], planted.clone(), 18, &[]), planted);
        assert_eq!(about(&[Lane::Payment], &Lane::ALL, planted, 18, &[]).len(), 1);
    }

    #[test]
    fn what_is_expected_of_one_partition_is_expected_of_each() {
        let names =
            ["payment_outbox_attempts_from_start".to_owned(), "payment_outbox_attempts_from_20261123".to_owned()];
        let expected = expected(&[Lane::Payment], 18, &names);
        for name in names {
            let trigger = format!("trigger ledger_is_append_only on symphony.{name}");
            let values = &expected[&(trigger, "definition".to_owned())];
            assert!(values.iter().all(|value| value.contains(&name) && value.ends_with(" always")), "{values:?}");
        }
        assert!(!expected.keys().any(|(object, _)| object.contains(ANY_PARTITION)));
    }

    #[test]
    fn a_fact_may_have_several_printings() {
        let views = expected(&Lane::ALL, 15, &[]);
        assert!(views.values().any(|values| values.len() > 1));
        assert!(views.values().all(|values| !values.is_empty()));
    }
}
