//! The daemon: what `symphony run` puts together.
//!
//! It decides nothing about payments. It checks that it may start, gives the engine its lane, its listener and somebody who
//! counts, answers HTTP, and turns signals into a stop.
//!
//! # Layout
//! - [`checks`]: why not to start
//! - [`endpoints`]: health, readiness, metrics
//! - [`gauges`]: what only the database knows, asked when somebody looks
//! - [`log`]: how lines are written
//! - [`meter`]: what the engine tells, as Prometheus counts it
//! - [`served`]: which lanes, with which ways out
//! - [`traces`]: whether spans are drawn, and how many are lost

pub(crate) mod checks;
pub(crate) mod endpoints;
pub(crate) mod gauges;
pub(crate) mod log;
pub(crate) mod meter;
pub(crate) mod served;
pub(crate) mod traces;
