//! Logs an epoch that a claim has opened: the database server is another one, or was promoted or restored.

use symphony_db::epoch::OpenedEpoch;

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
