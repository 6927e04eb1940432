//! Relayer processes with a simulated bank, under fault injection: proofs 26 to 29.
//!
//! # Layout
//! - [`harness`]: a test database, a bank and relayers, with the reconciliation at the end; it uses [`bank`],
//!   [`relayer`], [`producers`] and [`http`]
//! - [`wakeups`]: proof 26, notifications and polling each suffice; [`idle_cost`]: what an idle relayer costs
//! - [`crash_recovery`], [`frozen_process`], [`lost_replies`]: proof 27, the relayer dies, freezes or loses a reply;
//!   [`shutdown`]: it is told to stop; [`lease_takeover`]: how a dead worker is reported
//! - [`database_outage`], [`pgbouncer`]: proof 28, the database fails, or is behind a pooler
//! - [`epoch`]: the database was promoted or restored
//! - [`unknown_outcome`]: proof 29, the bank's answer is lost; [`circuit_breaker`]: the bank is down;
//!   [`oversized_payloads`]: it refuses single payments; [`moved_rail`]: it is another bank, or has another address
//! - [`confirmation`]: the bank accepts a payment, and confirms it later by an inquiry or a callback, or never
//! - [`protocol_replay`]: the replay at the end of each run finds what the protocol does not allow
//! - [`startup_checks`], [`unserved_rails`], [`config_secrets`]: refusals and warnings at the start
//! - [`http_endpoints`], [`log_events`], [`log_redaction`]: metrics, health and log
//! - [`ledger_partitions`]: a relayer adds partitions to the ledger
//! - [`systemd`]: what a service manager hears
//! - [`one_role`]: a login with symphony_executor alone runs every lane
//! - [`rate_limit`]: a rail with max_per_second
//! - [`followed_payments`]: a service learns from events how its payments ended
//! - [`trace_export`]: spans; [`recording_server`] receives them
//! - [`alert_rules`], [`firing_alerts`]: the shipped alerts and dashboard, as files and in a running [`prometheus`]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, but does not recognise helpers outside of test functions"
)]

mod alert_rules;
mod bank;
mod circuit_breaker;
mod config_secrets;
mod confirmation;
mod crash_recovery;
mod database_outage;
mod epoch;
mod firing_alerts;
mod followed_payments;
mod frozen_process;
mod harness;
mod http;
mod http_endpoints;
mod idle_cost;
mod lease_takeover;
mod ledger_partitions;
mod log_events;
mod log_redaction;
mod lost_replies;
mod moved_rail;
mod one_role;
mod orphans;
mod oversized_payloads;
mod pgbouncer;
mod producers;
mod prometheus;
mod protocol_replay;
mod rate_limit;
mod recording_server;
mod relayer;
mod request_templates;
mod secrets;
mod shutdown;
mod slow_rails;
mod startup_checks;
mod systemd;
mod trace_export;
mod unknown_outcome;
mod unserved_rails;
mod wakeups;
