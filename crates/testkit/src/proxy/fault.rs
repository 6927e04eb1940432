//! Faults to inject into matching requests, with a limit and a count of injections.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::wait::TimedOut;

/// What a fault does to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Closes the connection before the request reaches the server: it is not executed.
    RequestLost,
    /// Lets the server execute the request, then drops its reply and closes the connection. Outside of a transaction
    /// block the request is committed; in a transaction block, lose the reply to COMMIT instead.
    ReplyLost,
    /// Like `ReplyLost`, but holds the reply until [`Fault::release`]. Use it to kill a client whose request is
    /// committed and that has not received the reply.
    ReplyHeld,
}

/// A fault for matching requests. It skips a request that the server refuses, and does not count it.
#[derive(Clone, Debug)]
pub struct Fault(Arc<Armed>);

#[derive(Debug)]
struct Armed {
    kind: FaultKind,
    /// In lower case.
    text: String,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    /// How many injections are left.
    left: u32,
    fired: u32,
    /// Whether held replies may be sent.
    released: bool,
}

impl Fault {
    /// How often the fault was injected.
    pub fn fired(&self) -> u32 {
        self.0.progress.borrow().fired
    }

    /// Waits until the fault was injected this many times.
    ///
    /// # Errors
    /// When the timeout passes first.
    pub async fn wait_fired(&self, times: u32, timeout: Duration) -> Result<(), TimedOut> {
        let mut progress = self.0.progress.subscribe();
        let fired = progress.wait_for(|progress| progress.fired >= times);
        match tokio::time::timeout(timeout, fired).await {
            // `self` owns the sender, so the channel cannot be closed.
            Ok(_) => Ok(()),
            Err(_) => {
                let Armed { kind, text, .. } = &*self.0;
                let fired = self.fired();
                let what = format!(
                    "{kind:?} is injected {times} times into requests with {text:?} (so far {fired} times)"
                );
                Err(TimedOut { what, timeout })
            }
        }
    }

    /// Disables the fault. Replies already held stay held.
    pub fn disarm(&self) {
        self.0.progress.send_modify(|progress| progress.left = 0);
    }

    /// Sends the held replies, and holds no more.
    pub fn release(&self) {
        self.0.progress.send_modify(|progress| progress.released = true);
    }
}

/// The faults of one proxy.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    pub(super) fn arm(&self, kind: FaultKind, text: &str, times: u32) -> Fault {
        let progress = watch::Sender::new(Progress { left: times, fired: 0, released: false });
        let fault = Fault(Arc::new(Armed { kind, text: text.to_lowercase(), progress }));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fault.clone());
        fault
    }

    /// Reserves an injection for a request with this SQL in lower case, from the first matching fault that has one
    /// left.
    pub(super) fn reserve(&self, sql: &str) -> Option<Injection> {
        let faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faults.iter().filter(|fault| sql.contains(&fault.0.text)).find_map(|fault| {
            let reserved = fault.0.progress.send_if_modified(|progress| {
                let armed = progress.left > 0;
                progress.left -= u32::from(armed);
                armed
            });
            reserved.then(|| Injection { fault: fault.clone(), fired: false })
        })
    }
}

/// One injection, reserved for a request. Dropped without [`Self::fire`], it is available for another request.
#[derive(Debug)]
pub(super) struct Injection {
    fault: Fault,
    fired: bool,
}

impl Injection {
    pub(super) fn kind(&self) -> FaultKind {
        self.fault.0.kind
    }

    /// Counts the injection.
    pub(super) fn fire(&mut self) {
        self.fired = true;
        self.fault.0.progress.send_modify(|progress| progress.fired += 1);
    }

    /// Waits until held replies may be sent.
    pub(super) async fn released(&self) {
        let _ = self.fault.0.progress.subscribe().wait_for(|progress| progress.released).await;
    }
}

impl Drop for Injection {
    fn drop(&mut self) {
        if !self.fired {
            self.fault.0.progress.send_modify(|progress| progress.left += 1);
        }
    }
}
