//! What a proof needs around it and does not want to know about: a server to talk to, and a database of its own.

pub mod crowd;
pub mod postgres;
pub mod scratch;
