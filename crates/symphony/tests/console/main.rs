//! The console as a process serves it: who may ask what, what is answered, and what is done and written down.
//!
//! # Layout
//! - [`office`]: a database with work in every state, and a relayer that serves the console; [`http`] asks it
//! - [`scopes`]: every endpoint with every token, from the API's own description
//! - [`refusing`]: what keeps it from starting, and whom it turns away
//! - [`http_attack`]: denial of service by raw sockets; [`host_header`]: under which names it answers
//! - [`token_limits`]: what the holder of one token may take
//! - [`hostile_text`]: text of others, on pages and terminals
//! - [`personal_data`]: who did what, and who may not know
//! - [`reading`]: what the API shows
//! - [`acting`]: what the API does, and what it writes down
//! - [`exporting`]: what auditors take away
//! - [`pages`], [`live`]: the dashboard, without scripts and with
//! - [`describing`]: every answer against the API's description
//! - [`browser`]: the dashboard in a real browser
//! - [`crowding`]: what each page takes beside a long past
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod acting;
mod browser;
mod crowding;
mod describing;
mod exporting;
mod host_header;
mod hostile_text;
mod http;
mod http_attack;
mod live;
mod office;
mod pages;
mod personal_data;
mod reading;
mod refusing;
mod scopes;
mod token_limits;
