//! No test is ignored, and none sleeps on the real clock.

use crate::{files, is_rust, lines, none};

#[test]
fn no_test_is_ignored_and_none_sleeps() {
    // Files that may sleep. None of them takes the end of a pause as a sign that something happened.
    const MAY_SLEEP: [&str; 6] = [
        // A slow sink.
        "crates/relay/tests/event/fixture.rs",
        // The time over which the cost of an idle relayer is measured.
        "crates/symphony/tests/relayer/idle_cost.rs",
        // A random moment for the kill.
        "crates/symphony/tests/relayer/crash_recovery.rs",
        // The pace at which producers go on.
        "crates/symphony/tests/patroni/load.rs",
        // The pace at which payments are enqueued.
        "crates/symphony/tests/relayer/producers.rs",
        // The poll interval of a loop that waits for the end of a process.
        "crates/symphony/tests/usage.rs",
    ];
    let tests = files(|path| {
        is_rust(path)
            && (path.contains("/tests/") || path.contains("/proofs/"))
            && !path.starts_with("crates/proof/tests/repository/")
    });
    none(
        "tests that are ignored or sleep",
        &lines(&tests, |file, line| {
            let sleeps = ["sleep(", "sleep_until(", "park_timeout("].iter().any(|word| line.contains(word))
                && !file.path.starts_with(PAUSED)
                && !MAY_SLEEP.contains(&file.path.as_str());
            line.contains("#[ignore") || sleeps || line.contains("pg_sleep")
        }),
    );
}

/// Tests with the paused clock of tokio: a sleep there takes no time.
const PAUSED: &str = "crates/relay/tests/engine/";

#[test]
fn where_tests_may_sleep_their_clock_is_paused() {
    let tests = files(|path| path.starts_with(PAUSED));
    none(
        "tests by the real clock",
        &lines(&tests, |_, line| {
            line.contains("tokio::test") && !line.contains("start_paused = true")
                || line.contains("thread::sleep")
                || line.contains("time::resume")
        }),
    );
}
