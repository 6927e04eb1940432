//! The payment protocol, stated a second time: its rules as pure functions, apart from the SQL and the engine.
//!
//! Two checks use them. The model in `crates/model` walks through every state that they allow. The replay reads what a
//! finished run has left behind, and reports the first step that they do not allow.
//!
//! ```no_run
//! # async fn f(owner: &mut tokio_postgres::Client, requests: &str) -> Result<(), Box<dyn std::error::Error>> {
//! use symphony_testkit::protocol::{replay, trace};
//!
//! let trace = trace::read(owner).await?;
//! let requests = trace::requests(requests)?; // GET /v1/requests of the simulated bank
//! replay::replay(&trace, &requests).map_err(|deviation| deviation.to_string())?;
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! - [`rules`]: what a lease decides, when an outcome is unknown, and what may follow
//! - [`trace`]: what a run has left behind
//! - [`replay`]: attempts, keys and streams, by the rules
//! - `explanation`: which attempt sent which request to the bank

mod explanation;
pub mod replay;
pub mod rules;
pub mod trace;

#[cfg(test)]
mod tests;
