//! Starts an engine on the fake lane.

use std::sync::Arc;
use std::time::Duration;

use symphony_relay::stop::StopHandle;
use symphony_relay::{Engine, Settings, Summary};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::Sim;
use super::lane::SimListener;

/// Without repair, which has tests of its own; polls are left out where they are not the matter.
pub(crate) fn quiet() -> Settings {
    Settings { poll: None, repair_every: Duration::ZERO, ..Settings::default() }
}

/// An engine at work.
pub(crate) struct Work {
    pub(crate) stop: StopHandle,
    pub(crate) task: JoinHandle<Summary>,
}

impl Work {
    /// Requests a stop once and waits for the end.
    pub(crate) async fn end(self) -> Summary {
        self.stop.signal();
        self.task.await.expect("the engine ends in order")
    }
}

pub(crate) fn start(sim: &Sim, settings: Settings) -> Work {
    start_with(sim, settings, None)
}

pub(crate) fn start_with_listener(sim: &Sim, settings: Settings) -> Work {
    start_with(sim, settings, Some(SimListener { sim: sim.clone(), notifications: None }))
}

fn start_with(sim: &Sim, settings: Settings, listener: Option<SimListener>) -> Work {
    let engine = Engine::new(Arc::new(sim.clone()), settings).expect("settings in range");
    let (stop, signal) = StopHandle::new();
    let task = tokio::spawn(engine.with_meter(Arc::new(sim.clone())).run(listener, signal));
    Work { stop, task }
}

/// Lets so much time pass.
pub(crate) async fn pass(time: Duration) {
    sleep(time).await;
}
