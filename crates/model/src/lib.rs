//! A model of the payment protocol, and a checker that searches every state of it.
//!
//! All of it is the test `protocol`: begin at `tests/protocol/main.rs`. This crate is apart from the proofs because it
//! alone needs a model checker.
