//! A reference model of the payment lane, and the harness that runs random interleavings against it and a database.
//!
//! # Layout
//!
//! - [`reference`]: the rules of the lane in plain Rust, on one state; knows no SQL and no connection
//! - [`claims`]: the rules of claim and repair, which leave the database some freedom
//! - [`transactions`]: which state each session sees while others hold transactions open, and which call would wait for another
//! - [`step`]: what a generated sequence is made of; says "the third live lease", so that any part of it makes sense
//! - [`call`]: a concrete call and its answer
//! - [`step_to_call`]: from a step to a call
//! - [`id_map`]: maps names and ids of the database to the numbers of the model
//! - [`sessions`]: makes the calls on a real database, through several connections
//! - [`pending`]: compares the queue, after every step
//! - [`full_comparison`]: compares everything else, now and then and at the end
//! - [`run`]: runs one sequence against both

pub(crate) mod call;
pub(crate) mod claims;
pub(crate) mod full_comparison;
pub(crate) mod id_map;
pub(crate) mod pending;
pub(crate) mod reference;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod step;
pub(crate) mod step_to_call;
pub(crate) mod transactions;
