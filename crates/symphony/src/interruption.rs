//! Ctrl-C and its kin: the work is dropped, which cleans up after it, and the exit code says why.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Does the work, unless somebody asks this program to end.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    let caught = tokio::select! {
        done = work => return done,
        _ = interrupt.recv() => SignalKind::interrupt(),
        _ = terminate.recv() => SignalKind::terminate(),
    };
    // The work was dropped at the end of the select, with all that it held.
    Err(Failure::interrupted(caught.as_raw_value()))
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::no(format!("cannot listen for signals: {error}")))
}
