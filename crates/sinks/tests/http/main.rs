//! The HTTP rail against real sockets: conforming banks, misbehaving servers and broken connections.

#![cfg(test)]

mod addresses;
mod ambiguous_answers;
mod bank;
mod documentation;
mod faults;
mod harness;
mod keepalive;
mod settings;
mod signature;
mod tls;
