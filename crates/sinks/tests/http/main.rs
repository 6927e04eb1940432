//! The HTTP rail against real sockets: conforming banks, misbehaving servers and broken connections.

#![cfg(test)]

mod access_tokens;
mod adapter_description;
mod addresses;
mod ambiguous_answers;
mod bank;
mod bank_formats;
mod documentation;
mod faults;
mod harness;
mod keepalive;
mod recorder;
mod reload;
mod settings;
mod signature;
mod signed_requests;
mod templates;
mod tls;
