//! Starts an engine on the fake lane.

use std::sync::Arc;
use std::time::Duration;

use symphony_relay::stop::StopHandle;
use symphony_relay::{Engine, Settings, Summary};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Sim;
use super::lane::SimListener;

/// Settings without polls and repair, so that nothing else wakes the engine.
pub(crate) fn without_polls() -> Settings {
    Settings { poll_interval: None, repair_every: Duration::ZERO, ..Settings::default() }
}

/// A running engine.
pub(crate) struct RunningEngine {
    pub(crate) handle: StopHandle,
    pub(crate) task: JoinHandle<Summary>,
}

impl RunningEngine {
    /// Requests a stop once and waits for the end.
    pub(crate) async fn stop(self) -> Summary {
        self.handle.request_stop();
        self.task.await.expect("the engine does not panic")
    }
}

pub(crate) fn start(sim: &Sim, settings: Settings) -> RunningEngine {
    start_with(sim, settings, None)
}

pub(crate) fn start_with_listener(sim: &Sim, settings: Settings) -> RunningEngine {
    start_with(sim, settings, Some(SimListener { sim: sim.clone(), notifications: None }))
}

fn start_with(sim: &Sim, settings: Settings, listener: Option<SimListener>) -> RunningEngine {
    let engine = Engine::new(Arc::new(sim.clone()), settings).expect("settings in range");
    let (handle, stop_signal) = StopHandle::new();
    let task = tokio::spawn(engine.with_meter(Arc::new(sim.clone())).run(listener, stop_signal));
    RunningEngine { handle, task }
}

/// Advances the paused clock.
pub(crate) async fn advance(time: Duration) {
    sleep(time).await;
}
