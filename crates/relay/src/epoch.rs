//! Keeps a process off a server whose epoch has ended, and logs an epoch that a claim has opened.
//!
//! After a failover the old primary may still run, and still answer. A process that has seen a later epoch makes no call
//! there, in any lane: not on a session that it had kept, and not on a new one. What it claimed there and has not sent, it
//! does not send.

use std::sync::atomic::{AtomicI64, Ordering};

use symphony_db::connect::Session;
use symphony_db::epoch::{self, OpenedEpoch};

use crate::lane::LaneError;

/// The newest epoch that any server has shown to this process. The lanes of a process share one.
#[derive(Debug, Default)]
pub struct EpochFence {
    /// 0 before the first: epochs begin at 1.
    newest: AtomicI64,
}

impl EpochFence {
    /// A server has shown this epoch.
    ///
    /// # Errors
    ///
    /// If another has shown a later one: it may be an old primary. A later call may reach the new one.
    pub fn see(&self, epoch: i64) -> Result<(), LaneError> {
        let newest = self.newest.fetch_max(epoch, Ordering::AcqRel);
        if newest <= epoch {
            return Ok(());
        }
        tracing::error!(
            event = "OLD_PRIMARY_REFUSED",
            epoch,
            newest_epoch = newest,
            "the server is in an earlier epoch than one that this relayer has seen, and is not used"
        );
        let next = newest + 1;
        Err(LaneError::Unavailable(format!(
            "the server is in epoch {epoch}, and this relayer has seen epoch {newest}: it may be an old primary. If it was \
             restored, run: symphony recover open --at-least {next}"
        )))
    }

    /// Whether a server has shown a later epoch than this.
    #[must_use]
    pub fn has_ended(&self, epoch: i64) -> bool {
        epoch < self.newest.load(Ordering::Acquire)
    }

    /// Why a row is not sent that was claimed in this epoch; `None` if it may be sent.
    pub(crate) fn refusal(&self, claimed_in: Option<i64>) -> Option<&'static str> {
        claimed_in
            .is_some_and(|epoch| self.has_ended(epoch))
            .then_some("it was claimed in an earlier epoch of the database, and not sent")
    }

    /// Asks the server of a session for its epoch. `None` on a standby, which refuses the calls of a lane itself.
    pub(crate) async fn check(&self, session: &Session) -> Result<Option<i64>, LaneError> {
        let epoch = epoch::of_server(session).await?;
        epoch.map_or(Ok(()), |epoch| self.see(epoch))?;
        Ok(epoch)
    }
}

/// Logs it at the level of an error, because an operator should look: the failover may have lost commits.
pub(crate) fn log_opened(lane: &'static str, opened: Option<&OpenedEpoch>) {
    let Some(OpenedEpoch { opened, previous }) = opened else { return };
    let previous = previous.as_ref();
    tracing::error!(
        event = "EPOCH_OPENED",
        lane,
        epoch = opened.counter,
        system_identifier = opened.system_identifier,
        timeline = opened.timeline,
        previous_epoch = previous.map(|epoch| epoch.counter),
        previous_system_identifier = previous.map(|epoch| epoch.system_identifier),
        previous_timeline = previous.map(|epoch| epoch.timeline),
        reason = opened.reason,
        "the database was promoted, restored or replaced, and may have lost commits: payments of earlier epochs are \
         inquired about before they are sent, rails with on_epoch_change HOLD are held; see symphony recover show"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_an_earlier_epoch_is_refused() {
        let fence = EpochFence::default();
        fence.see(3).unwrap();
        fence.see(3).unwrap();
        let refused = fence.see(2).unwrap_err().to_string();
        assert!(refused.contains("epoch 3") && refused.contains("--at-least 4"), "{refused}");
        fence.see(5).unwrap();
        fence.see(3).unwrap_err();
        assert_eq!((fence.has_ended(5), fence.has_ended(4)), (false, true));
        assert_eq!((fence.refusal(Some(5)), fence.refusal(None)), (None, None));
        assert!(fence.refusal(Some(4)).is_some());
    }
}
