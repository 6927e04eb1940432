//! The relayer's engine: wake, claim, dispatch, complete, renew, repair.
//!
//! It decides when, how many, in what order and how often. It knows no broker, no bank and no SQL: a lane is behind
//! a trait, and so is every way out.
//!
//! # Layout
//!
//! - [`rail`]: what a way out for payments can do

pub mod rail;
