//! The relayer's engine: wake, claim, dispatch, complete, renew, repair.
//!
//! It decides when to claim, how many rows, in what order, and when to retry. It contains no SQL and no protocol of a broker or
//! a bank: lanes, rails, sinks and stores are traits.
//!
//! # Layout
//!
//! Start at [`lane`], then read [`engine`]. Each of the modules up to `backoff` makes one decision, without calls and clocks.
//!
//! - [`lane`]: the interface between the engine and a lane
//! - [`lease`]: the time left under a lease, by the clock of this process
//! - [`engine`]: the loop, its state, its tasks, and the handling of their results
//! - [`wake`]: when to claim; [`listener`]: notifications (LISTEN/NOTIFY) that wake an idle engine
//! - [`claim_capacity`]: how many rows a claim may lease; `slots`: how many dispatches may run
//! - `completion_batcher`: when outcomes are recorded, and when that is retried
//! - `renewal`: which leases to renew, which dispatches to cancel
//! - [`breaker`]: circuit breakers per route
//! - `backoff`: exponential backoff with jitter
//! - [`stop`]: graceful and immediate shutdown
//! - [`settings`]: the settings and their ranges; [`metrics`]: the interface for metrics
//! - [`trace`]: trace contexts, and the interface for spans
//! - [`fail_point`]: fault injection: steps at which a test build aborts
//! - [`payment`]: the payment lane; [`rail`]: the interface of a payment rail
//! - [`event`]: the event lane; [`sink`]: the interface of an event sink
//! - [`metadata`]: the metadata lane; [`store`]: the interface of a metadata store
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
