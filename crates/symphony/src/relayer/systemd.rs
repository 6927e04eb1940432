//! Tells systemd that the relayer has started, is alive and stops: `Type=notify` and `WatchdogSec` of a unit.
//!
//! Outside systemd nothing is sent. A message that cannot be sent changes nothing for the relayer: systemd decides by what it received.

use std::time::Duration;

use sd_notify::NotifyState;

/// The checks have passed and the listeners are bound. From now on the watchdog, if the unit has one, hears from the
/// runtime on which the engines run.
pub(crate) fn report_start() {
    send(NotifyState::Ready);
    if let Some(timeout) = sd_notify::watchdog_enabled() {
        tokio::spawn(report_life(timeout / 2));
    }
}

/// Running dispatches may finish.
pub(crate) fn report_stop() {
    send(NotifyState::Stopping);
}

async fn report_life(interval: Duration) {
    let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(1)));
    loop {
        ticks.tick().await;
        send(NotifyState::Watchdog);
    }
}

fn send(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "systemd cannot be notified");
    }
}
