//! The HTTP rail against real sockets: servers that behave, servers that do not, and connections that break.

#![cfg(test)]

mod addresses;
mod ambiguous_answers;
mod bank;
mod faults;
mod keepalive;
mod kit;
mod manual;
mod settings;
mod signature;
mod tls;
