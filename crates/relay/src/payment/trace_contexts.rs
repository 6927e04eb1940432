//! Looks up the trace contexts in which claimed payments were enqueued, so that a dispatch continues its producer's
//! trace.
//!
//! One lookup per claim, and only if traces are exported. Best effort: a payment is dispatched without a context rather
//! than late.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use symphony_db::OutboxId;
use symphony_db::payment::worker::{self, Claimed};
use tokio::time::timeout;

use crate::lane::LaneError;
use crate::session_pool::SessionPool;
use crate::trace::Context;

/// How long a claim waits for the lookup. The session has just returned the claim, so it is unlikely to be slow.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);

/// The lookup; it logs only the first failure in a row.
#[derive(Debug, Default)]
pub(super) struct TraceContexts {
    failing: AtomicBool,
}

impl TraceContexts {
    /// The context of each payment that has a well-formed one.
    pub(super) async fn look_up(&self, pool: &SessionPool, claimed: &[Claimed]) -> HashMap<OutboxId, Context> {
        if claimed.is_empty() {
            return HashMap::new();
        }
        let outboxes: Vec<_> = claimed.iter().map(|claimed| claimed.outbox_id).collect();
        let lookup = pool.call(async |session| worker::trace_contexts(session, &outboxes).await);
        let timed_out = |_| Err(LaneError::Unavailable(format!("no answer within {LOOKUP_TIMEOUT:?}")));
        match timeout(LOOKUP_TIMEOUT, lookup).await.unwrap_or_else(timed_out) {
            Ok(contexts) => {
                self.failing.store(false, Ordering::Relaxed);
                contexts.into_iter().filter_map(|(id, text)| Some((id, Context::parse(&text)?))).collect()
            }
            Err(error) => {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the producers' traces are not known: each dispatch starts a new trace");
                }
                HashMap::new()
            }
        }
    }
}
