//! The fail points at which a process aborts.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use symphony_relay::Settings;
use symphony_relay::fail_point::{ALL, VARIABLE};

use crate::sim::*;

const ABORTED: i32 = 6;

/// A run that reaches every step. The test below starts it in child processes.
#[tokio::test(start_paused = true)]
async fn a_run_that_reaches_every_step_survives_without_the_variable() {
    let sim = Sim::new();
    sim.set_behavior("slow", Behavior { latency: 15 * S, ..INSTANT });
    sim.enqueue("slow");
    let engine = start_with_listener(&sim, Settings { repair_every: 10 * S, ..Settings::default() });
    advance(20 * S).await;
    // This claim is in flight when the engine stops, so its row is released.
    sim.inject(Call::Claim, &[Fault::Slow(S)]);
    sim.enqueue("wire");
    advance(MS).await;
    let summary = engine.stop().await;
    assert_eq!((summary.recorded, summary.released), (1, 1));
}

#[test]
fn a_process_aborts_at_the_step_that_the_variable_names() {
    let run = |name: &str| {
        Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "crash_points::a_run_that_reaches_every_step_survives_without_the_variable"])
            .env(VARIABLE, name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("started")
    };
    for (_, name) in ALL {
        assert_eq!(run(name).signal(), Some(ABORTED), "{name}");
    }
    assert!(run("after_claim:9999").success(), "the step is not reached that often");
    assert_eq!(run("after_lunch").code(), Some(2), "a misspelt name must not pass");
}
