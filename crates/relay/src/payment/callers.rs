//! Looks up the trace contexts of claimed payments, once per batch and only if traces are exported. Best effort: a payment
//! is dispatched without one rather than late.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use symphony_outbox::OutboxId;
use symphony_outbox::payment::worker::{self, Claimed};
use tokio::time::timeout;

use crate::lane::LaneError;
use crate::session_pool::SessionPool;
use crate::trace::Context;

/// How long a batch waits for the answer. The claim was answered a moment ago, in the same session.
const TRACE_CONTEXT_TIMEOUT: Duration = Duration::from_millis(500);

/// Asks, and says when that begins to fail.
#[derive(Debug, Default)]
pub(super) struct Callers {
    fails: AtomicBool,
}

impl Callers {
    /// The trace of each payment that has one that is well-formed.
    pub(super) async fn of(&self, pool: &SessionPool, claimed: &[Claimed]) -> HashMap<OutboxId, Context> {
        if claimed.is_empty() {
            return HashMap::new();
        }
        let outboxes: Vec<_> = claimed.iter().map(|claimed| claimed.outbox_id).collect();
        let asked = pool.call(async |session| worker::trace_contexts(session, &outboxes).await);
        let late = |_| Err(LaneError::Unavailable(format!("no answer within {TRACE_CONTEXT_TIMEOUT:?}")));
        match timeout(TRACE_CONTEXT_TIMEOUT, asked).await.unwrap_or_else(late) {
            Ok(contexts) => {
                self.fails.store(false, Ordering::Relaxed);
                contexts.into_iter().filter_map(|(id, text)| Some((id, Context::parse(&text)?))).collect()
            }
            Err(error) => {
                if !self.fails.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the callers' traces are not known: dispatches begin traces of their own");
                }
                HashMap::new()
            }
        }
    }
}
