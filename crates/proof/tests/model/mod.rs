//! A reference model of the payment lane, and what plays random interleavings against it and a database.
//!
//! # Layout
//!
//! - [`reference`]: the rules of the lane in plain Rust, on one state; knows no SQL and no connection
//! - [`claims`]: the rules of claim and repair, which leave the database some freedom
//! - [`transactions`]: which state each session sees while others hold transactions open, and who would wait for whom
//! - [`step`]: what a generated sequence is made of; says "the third live lease", so that any part of it makes sense
//! - [`call`]: the same made concrete, in words for people
//! - [`choice`]: from a step to a call
//! - [`names`]: the names and ids of the database, and the numbers that the model has for them
//! - [`sessions`]: makes the calls on a real database, through several connections
//! - [`pending`]: compares the queue, after every step
//! - [`audit`]: compares everything else, now and then and at the end
//! - [`game`]: plays one sequence against both

pub(crate) mod audit;
pub(crate) mod call;
pub(crate) mod choice;
pub(crate) mod claims;
pub(crate) mod game;
pub(crate) mod names;
pub(crate) mod pending;
pub(crate) mod reference;
pub(crate) mod sessions;
pub(crate) mod step;
pub(crate) mod transactions;
