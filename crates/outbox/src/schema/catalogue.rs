//! The facts that an install leaves in the catalogue: those this build expects, and those that are there.
//!
//! The expected ones are in `schema/catalogue/`, a file for what every lane needs and one for each lane, a line each:
//! the PostgreSQL versions it holds for, the object, the facet and its value, parted by tabs. `scripts/catalogue`
//! writes them.

use std::collections::{BTreeMap, BTreeSet};

use tokio_postgres::{Client, GenericClient, Transaction, types::Type};

use super::{Lane, files, guard::PIN, lock};

/// By object and facet, the value.
pub type Facts = BTreeMap<(String, String), String>;

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
pub fn expected(lanes: &[Lane], major: u32) -> Facts {
    let texts = lanes.iter().map(|lane| text(*lane));
    [CORE].into_iter().chain(texts).flat_map(str::lines).filter_map(|line| fact(line, major)).collect()
}

/// Of the facts that were found, those that say something about `lanes`: without the objects of other lanes.
///
/// What lies in the schema of another lane is of that lane. Where lanes share a schema, what nobody knows is everybody's.
pub(super) fn about(lanes: &[Lane], found: Facts, major: u32) -> Facts {
    let others: Vec<_> = Lane::ALL.into_iter().filter(|lane| !lanes.contains(lane)).collect();
    let core = files::CORE.schema;
    let elsewhere: Vec<_> =
        others.iter().map(|lane| files::lot(*lane).schema).filter(|schema| *schema != core).collect();
    let theirs: BTreeSet<String> = others
        .iter()
        .flat_map(|lane| text(*lane).lines())
        .filter_map(|line| fact(line, major))
        .map(|((object, _), _)| object)
        .collect();
    let is_theirs = |object: &str| {
        theirs.contains(object)
            || elsewhere.iter().any(|schema| {
                object.contains(&format!(" {schema}.")) || object.ends_with(&format!("schema {schema}"))
            })
    };
    found.into_iter().filter(|((object, _), _)| !is_theirs(object)).collect()
}

fn fact(line: &str, major: u32) -> Option<((String, String), String)> {
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
    transaction.batch_execute("set local search_path = pg_catalog").await?;
    let version = transaction
        .query_typed("select current_setting('server_version_num')::int4 / 10000", &[])
        .await?
        .first()
        .map_or(0, |row| row.get::<_, i32>(0));
    let rows = transaction.query_typed(files::CATALOGUE.text, &[]).await?;
    let facts = rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
    Ok((facts, u32::try_from(version).unwrap_or(0)))
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

    #[test]
    fn what_is_of_another_lane_is_no_difference_of_this_one() {
        let facts = |objects: &[&str]| -> Facts {
            objects.iter().map(|object| (((*object).into(), "owner".into()), "x".into())).collect()
        };
        let payment = "table symphony.payment_outbox_pending";
        let event = [
            "schema m10_recovery",
            "table m10_recovery.outbox",
            "column m10_recovery.outbox.next_retry_at",
            "right of PUBLIC to EXECUTE on function m10_recovery.f()",
        ];
        let core = "function symphony.planted()";
        let found = facts(&[&event[..], &[payment, core]].concat());
        assert_eq!(about(&[Lane::Payment], found.clone(), 18), facts(&[payment, core]));
        assert_eq!(about(&[Lane::Event], found.clone(), 18), facts(&[&event[..], &[core]].concat()));
        assert_eq!(about(&Lane::ALL, found.clone(), 18), found);
    }
}
