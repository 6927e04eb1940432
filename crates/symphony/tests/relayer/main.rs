//! The relayer as a process, with a bank that is another, while everything around it breaks: proofs 26 to 29.
//!
//! # Layout
//! - [`yard`]: a database, a bank and relayers, started, killed and audited; [`bank`], [`relayer`], [`load`] and [`http`] are
//!   in it
//! - [`waking`]: proof 26, being woken is enough, and so is polling; [`idling`]: what it costs to wait
//! - [`dying`], [`killing`], [`freezing`], [`replies`], [`stopping`]: proof 27, the relayer dies, is late, or is told to go
//! - [`crashing`], [`stalling`], [`pooling`]: proof 28, the database dies, falls silent, or is behind a pooler
//! - [`doubting`], [`breaking`]: proof 29, the bank does not say, or is down; [`oversized_payloads`]: or refuses single rows
//! - [`refusing`], [`unserved_rails`], [`config_secrets`]: why it does not start, or starts with a warning, and what it says then
//! - [`answering`], [`logging`], [`log_events`]: what it answers, what it writes; [`lease_takeover`]: what it tells of a dead worker
//! - [`one_role`]: a login with symphony_executor alone runs every lane
//! - [`spanning`]: which spans it draws, and that nothing waits for them; [`collector`] takes them
//! - [`ruling`], [`alerting`]: the alerts and the dashboard that ship, as text and in a real run; [`tower`] has the Prometheus
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod alerting;
mod answering;
mod bank;
mod breaking;
mod collector;
mod config_secrets;
mod crashing;
mod doubting;
mod dying;
mod freezing;
mod http;
mod idling;
mod killing;
mod lease_takeover;
mod load;
mod log_events;
mod logging;
mod one_role;
mod oversized_payloads;
mod pooling;
mod refusing;
mod relayer;
mod replies;
mod ruling;
mod spanning;
mod stalling;
mod stopping;
mod tower;
mod unserved_rails;
mod waking;
mod yard;
