//! What a proof needs around it and does not want to know about: a server to talk to.

pub mod postgres;
