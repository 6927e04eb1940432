//! The facts that an install leaves in the catalogue: those this build expects, and those that are there.
//!
//! The expected ones are in `schema/catalogue/`, a line each: the PostgreSQL versions it holds for, the
//! object, the facet and its value, parted by tabs. `scripts/catalogue` writes them.

use std::collections::BTreeMap;

use tokio_postgres::{Client, types::Type};

use super::{Lane, files};

/// By object and facet, the value.
pub type Facts = BTreeMap<(String, String), String>;

const PAYMENT: &str = include_str!("../../../../schema/catalogue/payment.txt");

/// The facts that `lanes` should have on PostgreSQL `major`.
#[must_use]
pub fn expected(lanes: &[Lane], major: u32) -> Facts {
    let mut facts = Facts::new();
    for lane in lanes {
        let text = match lane {
            Lane::Payment => PAYMENT,
        };
        facts.extend(text.lines().filter_map(|line| fact(line, major)));
    }
    facts
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

/// The facts that are there, and the server's major version.
///
/// # Errors
/// When the database cannot be asked.
pub async fn found(client: &mut Client) -> Result<(Facts, u32), tokio_postgres::Error> {
    let transaction = client.build_transaction().read_only(true).start().await?;
    // Names are printed with their schema unless it is on the path.
    transaction.batch_execute("set local search_path = pg_catalog").await?;
    let version = transaction
        .query_typed("select current_setting('server_version_num')::int4 / 10000", &[])
        .await?
        .first()
        .map_or(0, |row| row.get::<_, i32>(0));
    let rows = transaction.query_typed(files::CATALOGUE.text, &[]).await?;
    transaction.rollback().await?;

    let facts = rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect();
    Ok((facts, u32::try_from(version).unwrap_or(0)))
}

/// The lanes of which the database has a trace.
pub(super) async fn lanes(client: &Client) -> Result<Vec<Lane>, tokio_postgres::Error> {
    let mut there = Vec::new();
    for lane in Lane::ALL {
        let table = match lane {
            Lane::Payment => "symphony.payment_outbox_pending",
        };
        let rows = client.query_typed("select to_regclass($1) is not null", &[(&table, Type::TEXT)]).await?;
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
        for line in PAYMENT.lines() {
            assert!((15..=18).any(|major| fact(line, major).is_some()), "{line}");
        }
    }
}
