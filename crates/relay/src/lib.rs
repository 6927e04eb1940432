#![doc = include_str!("../README.md")]
//! # Layout
//!
//! The engine decides when to claim, how many rows, in what order, and when to retry a call. It contains no SQL and
//! no wire protocol: lanes, rails, sinks and stores are traits.
//!
//! | to find… | look in… |
//! | --- | --- |
//! | a relayer in your own process, and its startup checks | [`relayer`] |
//! | how to write a rail, a sink or a store | [`rail`], [`sink`], [`store`] |
//! | the loop: claim, dispatch, complete, renew, repair, release | [`engine`], then `engine/state.rs` |
//! | what the engine does with the result of a dispatch or call | `engine/results.rs` |
//! | the interface between the engine and a lane | [`lane`] |
//! | where a claim is triggered: notification, due row, poll | [`wake`] |
//! | LISTEN/NOTIFY | [`listener`] keeps it connected; `symphony_db::listener` issues LISTEN |
//! | how many rows a claim may lease | [`claim_capacity`], `slots` (dispatches of this process) |
//! | how slow routes leave slots to others | `slots`; SQL: `claim_events_by_sink` and its like |
//! | where a lease is renewed, and a dispatch cancelled | `renewal`, and [`lease`] for the time left |
//! | where results are batched and recorded | `completion_batcher` |
//! | where a circuit breaker opens, and which rows probe | [`breaker`] |
//! | where an unknown outcome leads to an inquiry | `payment/unknown_outcome.rs` |
//! | which outcome a rail's answer becomes | `payment/answer_mapping.rs` |
//! | the lanes, which call the SQL functions | [`payment`], [`event`], [`metadata`] |
//! | FIFO order of one aggregate or entity | `key_order`, and [`event::order`] |
//! | FIFO order of payments on an ordered rail | SQL: `claim_outbox_batch`; of a run: `payment/run.rs` |
//! | where rows past their retention are removed | `retention` |
//! | where an old primary is refused, and a new epoch logged | [`epoch`] |
//! | where lost commits are noticed | `payment/history.rs` |
//! | the backoff of failed database calls | `call_backoff` |
//! | the backoff of a payment between attempts | SQL: `record_attempts` |
//! | database sessions | [`session_pool`] |
//! | how the claims of a dead process are released early | `claim_session`; SQL: `ended_claim_sessions` |
//! | graceful shutdown (drain) | [`stop`] requests it; `Phase` and `on_stop` in `engine/state.rs` drain |
//! | settings and their ranges | [`settings`] |
//! | metrics and traces | [`metrics`], [`trace`] |
//! | fault injection for crash tests | [`fail_point`] |
//! | planted bugs and repeatable jitter for the simulation in `tests/engine/swarm.rs` | [`simulation`] |
//!
//! `breaker`, `claim_capacity`, `completion_batcher`, `renewal`, `slots` and `wake` make one decision each, without
//! calls and clocks.

pub mod breaker;
mod call_backoff;
pub mod claim_capacity;
mod claim_session;
mod completion_batcher;
pub mod engine;
pub mod epoch;
pub mod event;
pub mod fail_point;
mod key_order;
pub mod lane;
pub mod lease;
pub mod listener;
pub mod metadata;
pub mod metrics;
pub mod payment;
pub mod rail;
pub mod relayer;
mod renewal;
mod retention;
pub mod session_pool;
pub mod settings;
pub mod simulation;
pub mod sink;
mod slots;
pub mod stop;
pub mod store;
pub mod trace;
pub mod wake;

pub use engine::{Engine, Summary};
pub use lane::Lane;
pub use relayer::Relayer;
pub use settings::Settings;
