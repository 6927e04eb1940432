//! The relayer's engine: wake, claim, dispatch, complete, renew, repair.
//!
//! It decides when, how many, in what order and how often. It knows no broker, no bank and no SQL: a lane is behind
//! a trait, and so is every way out.
//!
//! # Layout
//!
//! Read [`lane`] first, then [`engine`]; each of the others is one decision, made without calls and clocks of its own.
//!
//! - [`lane`]: what the engine asks of a lane, and the ways in which that may fail
//! - [`lease`]: how long a lease lasts, seen from this side
//! - [`engine`]: the loop, its tasks, and what it makes of what they bring
//! - [`wake`]: when to claim; [`listener`]: notifications (LISTEN/NOTIFY) that wake an idle engine
//! - [`claim_capacity`]: how many rows a claim may lease; `slots`: how many dispatches may run
//! - `completion_batcher`: when outcomes are recorded, and when that is retried
//! - `renewal`: which leases to renew, which dispatches to cut off
//! - [`breaker`]: which routes to leave alone
//! - `backoff`: how long to wait after a failure
//! - [`stop`]: how an engine is told to stop
//! - [`settings`]: what can be set, and its limits; [`metrics`]: what is told to whoever counts
//! - [`trace`]: whose trace a dispatch continues; what is told to whoever draws spans
//! - [`fail_point`]: where a process kills itself for a test
//! - [`payment`]: the payment lane; [`rail`]: what its ways out can do
//! - [`event`]: the event lane; [`sink`]: what its ways out can do
//! - [`metadata`]: the metadata lane; [`store`]: what its ways out can do
//! - `key_order`: FIFO order of the jobs of one aggregate or entity
//! - [`session_pool`]: the database sessions of a lane

mod backoff;
pub mod breaker;
pub mod claim_capacity;
mod completion_batcher;
pub mod engine;
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
mod renewal;
pub mod session_pool;
pub mod settings;
pub mod sink;
mod slots;
pub mod stop;
pub mod store;
pub mod trace;
pub mod wake;

pub use engine::{Engine, Summary};
pub use lane::Lane;
pub use settings::Settings;
