//! The fail points at which a process aborts.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use symphony_relay::Settings;
use symphony_relay::fail_point::{ALL, VARIABLE};

use crate::sim::*;

const ABORTED: i32 = 6;

/// A run that passes every step. The test below starts it in processes of its own.
#[tokio::test(start_paused = true)]
async fn a_run_that_passes_every_step_lives_when_nothing_is_said() {
    let sim = Sim::new();
    sim.manner("slow", Manner { takes: 15 * S, ..PROMPT });
    sim.enqueue("slow");
    let work = start_with_listener(&sim, Settings { repair_every: 10 * S, ..Settings::default() });
    pass(20 * S).await;
    // This claim is under way when the engine is told to stop, so what it brings is given back.
    sim.faults(Call::Claim, &[Fault::Slow(S)]);
    sim.enqueue("wire");
    pass(MS).await;
    let summary = work.end().await;
    assert_eq!((summary.recorded, summary.released), (1, 1));
}

#[test]
fn a_process_dies_at_the_step_it_was_told() {
    let run = |name: &str| {
        Command::new(std::env::current_exe().expect("a path"))
            .args(["--exact", "crash_points::a_run_that_passes_every_step_lives_when_nothing_is_said"])
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
    assert!(run("after_claim:9999").success(), "it never comes that far");
    assert_eq!(run("after_lunch").code(), Some(2), "a misspelt name is no way to pass");
}
