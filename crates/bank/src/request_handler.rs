//! Handles one request: number it, choose its fault, delay it, decide by its key, record the decision, respond.
//!
//! It knows no HTTP. One lock covers the decision and its place in the ledger, so two requests with one key cannot both
//! be the first. The client gets the decision after its ledger line is durable.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::{
    callback::CallbackSender,
    fault::{self, Fault},
    fault_change::{self, FaultChange},
    key_store::{Decision, KeyStore, LedgerEntry, NumberedRequest},
    ledger_file::{self, LedgerFile},
    payment::Payment,
    settings::Faults,
    wire::{Kind, Stats},
};

/// The state of a bank, shared by all requests.
pub(super) struct RequestHandler {
    state: Mutex<State>,
    pub(super) ledger: LedgerFile,
    callbacks: Option<CallbackSender>,
}

struct State {
    keys: KeyStore,
    faults: Faults,
    /// Faults for single keys, next first.
    scripted: HashMap<String, VecDeque<Fault>>,
    rate_window: RateWindow,
}

/// The result of a request and the fault that applies to its response.
pub(super) struct Handled {
    pub(super) fault: Fault,
    pub(super) decision: Decision,
    pub(super) retry_after: Duration,
}

/// The ledger cannot be written, so no response may be sent any more.
#[derive(Debug)]
pub(super) struct LedgerBroken;

impl RequestHandler {
    /// Replays the ledger file. Returns how many bytes of an incomplete last line were cut off.
    pub(super) fn open(
        ledger: Option<&Path>,
        faults: Faults,
        callbacks: Option<CallbackSender>,
    ) -> Result<(Self, u64), ledger_file::Error> {
        let mut keys = KeyStore::default();
        let (ledger, cut) = LedgerFile::open(ledger, |line| match serde_json::from_slice::<LedgerEntry>(line) {
            Ok(entry) => {
                keys.replay(&entry);
                true
            }
            Err(_) => false,
        })?;
        let rate_window = RateWindow { began: Instant::now(), payments: 0 };
        Ok((
            Self {
                state: Mutex::new(State { keys, faults, scripted: HashMap::new(), rate_window }),
                ledger,
                callbacks,
            },
            cut,
        ))
    }

    /// Handles a payment.
    pub(super) async fn pay(&self, payment: Payment) -> Result<Handled, LedgerBroken> {
        let (numbered, fault) = self.admit(Kind::Payment, payment.key.clone()).await;
        self.record(fault, |state| state.keys.pay(numbered, payment, fault, &state.faults, Timestamp::now())).await
    }

    /// Handles an inquiry.
    pub(super) async fn inquire(&self, key: String) -> Result<Handled, LedgerBroken> {
        let (numbered, fault) = self.admit(Kind::Inquiry, key).await;
        self.record(fault, |state| state.keys.inquire(numbered, fault, &state.faults, Timestamp::now())).await
    }

    /// Decides what becomes of an accepted payment, as the bank means to or as it is told, and reports it by a callback. Whether the
    /// key waited for a decision.
    pub(super) async fn settle(&self, key: &str, execute: Option<bool>) -> Result<bool, LedgerBroken> {
        let (line, status) = {
            let mut state = self.lock();
            let State { keys, faults, .. } = &mut *state;
            let Some((entry, status)) = keys.settle(key, execute, faults, Timestamp::now()) else {
                return Ok(false);
            };
            let line = serde_json::to_vec(&entry).map_err(|_| LedgerBroken)?;
            (self.ledger.append(&line), status)
        };
        if !self.ledger.durable(line).await {
            return Err(LedgerBroken);
        }
        if let Some(callbacks) = &self.callbacks {
            callbacks.send(key, &status);
        }
        Ok(true)
    }

    /// Decides this key after `settle_after`, unless a decision came before.
    pub(super) fn settle_later(self: &Arc<Self>, key: String) {
        let Some(after) = self.lock().faults.settle_after else { return };
        let handler = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            // A ledger that cannot be written ends the bank.
            let _ = handler.settle(&key, None).await;
        });
    }

    /// Goes on with what an earlier run has accepted.
    pub(super) fn settle_all_later(self: &Arc<Self>) {
        let undecided = self.lock().keys.undecided();
        for key in undecided {
            self.settle_later(key);
        }
    }

    /// The counts.
    pub(super) fn stats(&self) -> Stats {
        self.lock().keys.stats().clone()
    }

    /// The fault settings, and the unused faults for single keys.
    pub(super) fn faults(&self) -> (Faults, BTreeMap<String, Vec<Fault>>) {
        let state = self.lock();
        let lists = state.scripted.iter().map(|(key, list)| (key.clone(), list.iter().copied().collect()));
        (state.faults.clone(), lists.collect())
    }

    /// Changes the faults from the next request on.
    pub(super) fn change_faults(&self, change: FaultChange) -> Result<(), fault_change::Error> {
        let mut state = self.lock();
        let State { faults, scripted, .. } = &mut *state;
        change.apply(faults, scripted)
    }

    /// Numbers the request, chooses its fault and waits for its delay.
    async fn admit(&self, kind: Kind, key: String) -> (NumberedRequest, Fault) {
        let (numbered, fault, delay) = {
            let mut state = self.lock();
            let numbered = state.keys.number_request(kind, key);
            let fault = state.choose_fault(&numbered);
            let delay = fault::delay(&state.faults, kind, &numbered.key, numbered.key_ordinal);
            (numbered, fault, delay)
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        (numbered, fault)
    }

    async fn record(
        &self,
        fault: Fault,
        decide: impl FnOnce(&mut State) -> (LedgerEntry, Decision),
    ) -> Result<Handled, LedgerBroken> {
        let (line, decision, retry_after) = {
            let mut state = self.lock();
            let (entry, decision) = decide(&mut state);
            // An entry has only texts and numbers, so JSON can hold it.
            let line = serde_json::to_vec(&entry).map_err(|_| LedgerBroken)?;
            (self.ledger.append(&line), decision, state.faults.retry_after)
        };
        if !self.ledger.durable(line).await {
            return Err(LedgerBroken);
        }
        Ok(Handled { fault, decision, retry_after })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic under this lock would be a bug; answering is better than hanging.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The fault of a request: that for its key, else the rate limit, else by chance.
    fn choose_fault(&mut self, numbered: &NumberedRequest) -> Fault {
        if let Some(list) = self.scripted.get_mut(&numbered.key) {
            let next = list.iter().position(|fault| fault.kind() == numbered.kind);
            if let Some(fault) = next.and_then(|at| list.remove(at)) {
                if list.is_empty() {
                    self.scripted.remove(&numbered.key);
                }
                return fault;
            }
        }
        if numbered.kind == Kind::Payment
            && let Some(limit) = self.faults.rate_limit
            && !self.rate_window.admits(limit, Instant::now())
        {
            return Fault::RateLimit;
        }
        fault::drawn(&self.faults, numbered.kind, &numbered.key, numbered.key_ordinal)
    }
}

/// The current second and the payments that it has admitted.
struct RateWindow {
    began: Instant,
    payments: u64,
}

impl RateWindow {
    fn admits(&mut self, limit: u64, now: Instant) -> bool {
        if now.duration_since(self.began) >= Duration::from_secs(1) {
            *self = Self { began: now, payments: 0 };
        }
        self.payments += 1;
        self.payments <= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_admits_its_limit_of_payments() {
        let start = Instant::now();
        let mut rate_window = RateWindow { began: start, payments: 0 };
        let mut admitted = |millis| rate_window.admits(2, start + Duration::from_millis(millis));
        assert_eq!(
            [0, 1, 2, 999, 1000, 1001, 1002].map(&mut admitted),
            [true, true, false, false, true, true, false]
        );
    }
}
