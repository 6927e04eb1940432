//! The facts that an install leaves in the catalogue: those this build expects, and those that are there.
//!
//! The expected ones are in `schema/catalogue/`, a file for what every lane needs and one for each lane, a line each:
//! the PostgreSQL versions it holds for, the object, the facet and its value, parted by tabs. `scripts/catalogue`
//! writes them. A fact may have several values: PostgreSQL prints an expression that was dumped and restored in other
//! words than the original, and both mean the same.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::{Client, GenericClient, Row, Transaction, types::Type};

use super::{Lane, files, guard::PIN, lock, verify::Severity};

/// What a fact is about: an object, and which facet of it.
pub type Key = (String, String);

/// The values that a fact may have, any of them.
pub type Expected = BTreeMap<Key, BTreeSet<String>>;

/// What was found.
pub type Facts = BTreeMap<Key, Fact>;

/// One fact as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The schema that it belongs to; none where it concerns the whole database.
    pub schema: Option<String>,
    /// What is so.
    pub value: String,
    /// What it means if this is not as expected.
    pub severity: Severity,
}

const CORE: &str = include_str!("../../../../schema/catalogue/core.txt");

const fn text(lane: Lane) -> &'static str {
    match lane {
        Lane::Payment => include_str!("../../../../schema/catalogue/payment.txt"),
        Lane::Event => include_str!("../../../../schema/catalogue/event.txt"),
        Lane::Metadata => include_str!("../../../../schema/catalogue/metadata.txt"),
    }
}

/// The facts that `lanes` should have on PostgreSQL `major`.
#[must_use]
pub fn expected(lanes: &[Lane], major: u32) -> Expected {
    let texts = lanes.iter().map(|lane| text(*lane));
    let mut expected = Expected::new();
    for (key, value) in [CORE].into_iter().chain(texts).flat_map(str::lines).filter_map(|line| fact(line, major)) {
        expected.entry(key).or_default().insert(value);
    }
    expected
}

/// Of the facts that were found, those that say something about `lanes`: without those of the other lanes that are
/// `installed`.
///
/// What lies in the schema of such a lane is of that lane. Where lanes share a schema, what no lane expects concerns all.
/// What looks like a lane that is not installed concerns all as well: it was planted.
pub(super) fn about(lanes: &[Lane], installed: &[Lane], found: Facts, major: u32) -> Facts {
    let others: Vec<_> = installed.iter().copied().filter(|lane| !lanes.contains(lane)).collect();
    let core = files::CORE.schema;
    let elsewhere: Vec<_> =
        others.iter().map(|lane| files::lot(*lane).schema).filter(|schema| *schema != core).collect();
    let theirs: BTreeSet<String> = others
        .iter()
        .flat_map(|lane| text(*lane).lines())
        .filter_map(|line| fact(line, major))
        .map(|((object, _), _)| object)
        .collect();
    let is_theirs = |object: &str, fact: &Fact| {
        theirs.contains(object) || fact.schema.as_deref().is_some_and(|schema| elsewhere.contains(&schema))
    };
    found.into_iter().filter(|((object, _), fact)| !is_theirs(object, fact)).collect()
}

fn fact(line: &str, major: u32) -> Option<(Key, String)> {
    let mut fields = line.splitn(4, '\t');
    let (first, last) = fields.next()?.split_once('-')?;
    let holds = first.parse::<u32>().ok()?..=last.parse().ok()?;
    // What holds for the newest version we know is expected of those to come.
    if !holds.contains(&major.min(NEWEST)) {
        return None;
    }
    Some(((fields.next()?.to_owned(), fields.next()?.to_owned()), fields.next()?.to_owned()))
}

/// The newest major version of PostgreSQL that the expected facts were read from.
const NEWEST: u32 = 18;

/// The facts that are there, and the server's major version. Waits for an install that is under way.
///
/// # Errors
/// When the database cannot be asked.
pub async fn found(client: &mut Client) -> Result<(Facts, u32), tokio_postgres::Error> {
    let transaction = begin(client).await?;
    let facts = found_in(&transaction).await?;
    transaction.rollback().await?;
    Ok(facts)
}

/// A transaction to look in, once no install is under way.
pub(super) async fn begin(client: &mut Client) -> Result<Transaction<'_>, tokio_postgres::Error> {
    let transaction = client.build_transaction().read_only(true).start().await?;
    transaction.batch_execute(PIN).await?;
    // Printing a definition locks its table, one after the other, and an install locks them in its own order:
    // without this the two could wait for each other.
    transaction.batch_execute(&lock::take_shared(lock::LOCK_TIMEOUT)).await?;
    Ok(transaction)
}

/// The same for a transaction that holds the lock already. Sets its search_path.
pub(super) async fn found_in(transaction: &Transaction<'_>) -> Result<(Facts, u32), tokio_postgres::Error> {
    // Names are printed with their schema unless it is on the path.
    transaction.batch_execute("set local search_path = pg_catalog, pg_temp").await?;
    let version = transaction
        .query_typed("select current_setting('server_version_num')::int4 / 10000", &[])
        .await?
        .first()
        .map_or(0, |row| row.get::<_, i32>(0));
    let mut facts = Facts::new();
    for query in files::FACTS {
        let rows = transaction.query_typed(query.text, &[]).await?;
        facts.extend(rows.iter().map(|row| ((row.get(1), row.get(2)), read(row))));
    }
    Ok((facts, u32::try_from(version).unwrap_or(0)))
}

fn read(row: &Row) -> Fact {
    let value: Option<&str> = row.get(3);
    // On one line, as the files have it.
    let words: Vec<_> = value.unwrap_or("none").split_ascii_whitespace().collect();
    let severity = if row.get::<_, &str>(4) == "warning" { Severity::Warning } else { Severity::Error };
    Fact { schema: row.get(0), value: words.join(" "), severity }
}

// Not to_regclass: it refuses whoever may not use the schema, and a look needs no rights. A schema that is not called
// after us may be somebody else's.
const IS_THERE: &str = "\
    select exists ( \
      select from pg_catalog.pg_class c \
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
      join pg_catalog.pg_roles o on o.oid = n.nspowner \
      where n.nspname = $1 and c.relname = $2 \
        and (n.nspname = 'symphony' or o.rolname = 'symphony_control'))";

/// The lanes of which the database has a trace.
pub(super) async fn lanes(client: &impl GenericClient) -> Result<Vec<Lane>, tokio_postgres::Error> {
    let mut there = Vec::new();
    for lane in Lane::ALL {
        let table = match lane {
            Lane::Payment => "payment_outbox_pending",
            Lane::Event => "outbox",
            Lane::Metadata => "metadata_outbox",
        };
        let schema = files::lot(lane).schema;
        let rows = client.query_typed(IS_THERE, &[(&schema, Type::TEXT), (&table, Type::TEXT)]).await?;
        if rows.first().is_some_and(|row| row.get(0)) {
            there.push(lane);
        }
    }
    Ok(there)
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
    fn every_line_of_the_expected_facts_is_understood() {
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
        assert_eq!(about(&[Lane::Payment], &Lane::ALL, all.clone(), 18), found(&[payment, core]));
        assert_eq!(about(&[Lane::Event], &Lane::ALL, all.clone(), 18), found(&[&event[..], &[core]].concat()));
        assert_eq!(about(&Lane::ALL, &Lane::ALL, all.clone(), 18), all);
    }

    #[test]
    fn what_only_looks_like_another_lane_is_a_difference() {
        let planted = found(&[
            ("trigger \"x m10_recovery.\" on symphony.payment_outbox_pending", Some("symphony")),
            ("schema m10_recovery", Some("m10_recovery")),
            ("table symphony.metadata_outbox", Some("symphony")),
        ]);
        assert_eq!(about(&[Lane::Payment], &[Lane::Payment], planted.clone(), 18), planted);
        assert_eq!(about(&[Lane::Payment], &Lane::ALL, planted, 18).len(), 1);
    }

    #[test]
    fn a_fact_may_have_several_printings() {
        let views = expected(&Lane::ALL, 15);
        assert!(views.values().any(|values| values.len() > 1));
        assert!(views.values().all(|values| !values.is_empty()));
    }
}
