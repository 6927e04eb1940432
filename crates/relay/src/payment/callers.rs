//! Whose traces claimed payments belong to. Asked once for each batch, where spans are drawn, and of no weight: a payment does
//! not wait long for the answer, and leaves without one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use symphony_outbox::OutboxId;
use symphony_outbox::payment::worker::{self, Claimed};
use tokio::time::timeout;

use crate::lane::Trouble;
use crate::line::Line;
use crate::trace::Context;

/// The longest that a batch waits for it. The claim was answered a moment ago, in the same session.
const PATIENCE: Duration = Duration::from_millis(500);

/// Asks, and says when that begins to fail.
#[derive(Debug, Default)]
pub(super) struct Callers {
    fails: AtomicBool,
}

impl Callers {
    /// The trace of each payment that has one that is well-formed.
    pub(super) async fn of(&self, line: &Line, claimed: &[Claimed]) -> HashMap<OutboxId, Context> {
        if claimed.is_empty() {
            return HashMap::new();
        }
        let outboxes: Vec<_> = claimed.iter().map(|claimed| claimed.outbox_id).collect();
        let asked = line.call(async |session| worker::trace_contexts(session, &outboxes).await);
        let late = |_| Err(Trouble::Away(format!("no answer within {PATIENCE:?}")));
        match timeout(PATIENCE, asked).await.unwrap_or_else(late) {
            Ok(contexts) => {
                self.fails.store(false, Ordering::Relaxed);
                contexts.into_iter().filter_map(|(id, text)| Some((id, Context::parse(&text)?))).collect()
            }
            Err(trouble) => {
                if !self.fails.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%trouble, "the callers' traces are not known: dispatches begin traces of their own");
                }
                HashMap::new()
            }
        }
    }
}
