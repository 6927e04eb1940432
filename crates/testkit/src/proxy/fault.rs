//! What is to happen to certain requests, how often, and how often it has.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::wait::TooLate;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// The connection is closed before the request reaches the server: it is not executed.
    RequestLost,
    /// The server executes the request and says so, and the connection is closed without telling the client. Outside
    /// of a transaction block the request is then committed; inside of one, it is COMMIT whose reply must be lost.
    ReplyLost,
    /// The same, but instead of closing, the reply is held back until it is [released](Fault::release). To kill a
    /// client that does not yet know what it has done.
    ReplyHeld,
}

/// Something that is to happen to certain requests. A request that the server refuses is not harmed, and does not count.
#[derive(Clone, Debug)]
pub struct Fault(Arc<Armed>);

#[derive(Debug)]
struct Armed {
    harm: Harm,
    /// In small letters.
    text: String,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    /// How often it may still happen.
    left: u32,
    fired: u32,
    /// Whether what is held back may go on.
    released: bool,
}

impl Fault {
    /// How often it has happened.
    pub fn fired(&self) -> u32 {
        self.0.progress.borrow().fired
    }

    /// Waits until it has happened so often.
    ///
    /// # Errors
    /// When the bound has passed first.
    pub async fn wait_fired(&self, times: u32, bound: Duration) -> Result<(), TooLate> {
        let mut progress = self.0.progress.subscribe();
        let fired = progress.wait_for(|progress| progress.fired >= times);
        match tokio::time::timeout(bound, fired).await {
            // We hold the other end: it cannot be closed.
            Ok(_) => Ok(()),
            Err(_) => {
                let Armed { harm, text, .. } = &*self.0;
                let fired = self.fired();
                let what =
                    format!("{harm:?} happened {times} times to requests with {text:?} (it did {fired} times)");
                Err(TooLate { what, bound })
            }
        }
    }

    /// Lets it not happen any more. What is held back stays so.
    pub fn disarm(&self) {
        self.0.progress.send_modify(|progress| progress.left = 0);
    }

    /// Lets go of what is held back, and of what would be from now on.
    pub fn release(&self) {
        self.0.progress.send_modify(|progress| progress.released = true);
    }
}

/// The faults of one proxy.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    pub(super) fn arm(&self, harm: Harm, text: &str, times: u32) -> Fault {
        let progress = watch::Sender::new(Progress { left: times, fired: 0, released: false });
        let fault = Fault(Arc::new(Armed { harm, text: text.to_lowercase(), progress }));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(fault.clone());
        fault
    }

    /// What is to happen to a request with this text, in small letters: the first of the faults that fits and is armed.
    pub(super) fn ticket(&self, sql: &str) -> Option<Ticket> {
        let faults = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        faults.iter().filter(|fault| sql.contains(&fault.0.text)).find_map(|fault| {
            let taken = fault.0.progress.send_if_modified(|progress| {
                let armed = progress.left > 0;
                progress.left -= u32::from(armed);
                armed
            });
            taken.then(|| Ticket { fault: fault.clone(), fired: false })
        })
    }
}

/// The right to harm one request. Given back, it is there for another.
#[derive(Debug)]
pub(super) struct Ticket {
    fault: Fault,
    fired: bool,
}

impl Ticket {
    pub(super) fn harm(&self) -> Harm {
        self.fault.0.harm
    }

    /// Makes known that it happens now.
    pub(super) fn fire(&mut self) {
        self.fired = true;
        self.fault.0.progress.send_modify(|progress| progress.fired += 1);
    }

    /// Waits until what is held back may go on.
    pub(super) async fn released(&self) {
        let _ = self.fault.0.progress.subscribe().wait_for(|progress| progress.released).await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.fired {
            self.fault.0.progress.send_modify(|progress| progress.left += 1);
        }
    }
}
