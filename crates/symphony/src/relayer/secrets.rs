//! Reads secrets and certificates again while the relayer runs: every few seconds if their files have changed, and on
//! SIGHUP.

use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::time::MissedTickBehavior;

use crate::shutdown_signals::received;

/// How often files are looked at. Orchestrators replace mounted secrets within a minute or so.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Follows the files for ever. `hangup` is SIGHUP, where it does not end the program.
pub(crate) async fn follow(mut hangup: Option<Signal>) {
    let mut look = tokio::time::interval(LOOK_INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let asked = tokio::select! {
            _ = look.tick() => false,
            () = received(hangup.as_mut()) => true,
        };
        // Reading files may block. A panic there would be a bug, and the next look tries again.
        let changed =
            tokio::task::spawn_blocking(move || symphony_sinks::reload_secrets(asked)).await.unwrap_or(0);
        if asked {
            tracing::info!(
                event = "SECRETS_READ",
                changed,
                "SIGHUP: the files of secrets and certificates were read"
            );
        }
    }
}
