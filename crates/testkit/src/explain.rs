//! The cost of a statement in pages, which is the same on every machine, unlike milliseconds.

use serde_json::Value;
use tokio_postgres::{Client, Error};

/// What a statement read and returned.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Pages, from memory or from disk.
    pub pages: i64,
    /// Rows that it returned; PostgreSQL 18 prints them with decimals.
    pub rows: Option<f64>,
}

/// Runs a statement three times in the client's open transaction, each time rolled back to a savepoint, and returns the
/// cost of the cheapest run.
///
/// The catalogue counts as well, and a session may have to read it again at any time: an install into another database of
/// the server resets the caches of all sessions, which adds some thousand pages to their next statement.
///
/// # Errors
/// Any error of the database; an error without an open transaction.
pub async fn cheapest_of_three(client: &Client, statement: &str) -> Result<Cost, Error> {
    let explain =
        format!("explain (analyze, buffers, timing off, costs off, summary off, format json) {statement}");
    let mut cheapest: Option<Cost> = None;
    for _ in 0..3 {
        client.batch_execute("savepoint explained").await?;
        let plan: Value = client.query_one(&explain, &[]).await?.try_get(0)?;
        client.batch_execute("rollback to savepoint explained").await?;
        let plan = &plan[0]["Plan"];
        let pages = |key: &str| plan[key].as_i64().unwrap_or_default();
        let cost = Cost {
            pages: pages("Shared Hit Blocks") + pages("Shared Read Blocks"),
            rows: plan["Actual Rows"].as_f64(),
        };
        cheapest = cheapest.filter(|cheapest| cheapest.pages <= cost.pages).or(Some(cost));
    }
    Ok(cheapest.unwrap_or(Cost { pages: 0, rows: None }))
}
