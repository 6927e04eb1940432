//! Remembers the last commits that the database has acknowledged to this process, and asks each new session for them.
//!
//! WAL is a prefix: if a commit is there, none before it is lost. If it is not, the server has lost history, whatever its
//! identity says, and a new epoch is opened before this process claims there. A server whose epoch is lower than one that
//! this process has seen may be an old primary, and is refused. The rule is in SQL: `check_worker_history`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::lane::LaneError;

/// Calls run side by side, and the one that was acknowledged last need not have been committed last. So a few are
/// remembered, and each of them must be there.
const REMEMBERED: usize = 8;

/// The last acknowledged commits, and the newest epoch that any server has shown.
#[derive(Debug)]
pub(super) struct History<C> {
    state: Mutex<State<C>>,
}

#[derive(Debug)]
struct State<C> {
    epoch: Option<i64>,
    /// The newest last.
    commits: VecDeque<C>,
}

impl<C: Copy> History<C> {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { epoch: None, commits: VecDeque::new() }) }
    }

    /// What a new session is asked for.
    pub(super) fn remembered(&self) -> (Option<i64>, Vec<C>) {
        let state = self.state();
        (state.epoch, state.commits.iter().copied().collect())
    }

    /// A server has shown this epoch. A lower one than before is refused. With a higher one the commits are forgotten: it may be
    /// the answer to their loss, and the next session must not be asked for them again.
    pub(super) fn see(&self, epoch: i64) -> Result<(), LaneError> {
        let mut state = self.state();
        if let Some(seen) = state.epoch.filter(|seen| *seen > epoch) {
            let next = seen + 1;
            return Err(LaneError::Refused(format!(
                "the server is in epoch {epoch}, and this relayer has seen epoch {seen}: it may be an old primary. If it was \
                 restored, run: symphony recover open --at-least {next}"
            )));
        }
        if state.epoch.replace(epoch) != Some(epoch) {
            state.commits.clear();
        }
        Ok(())
    }

    /// The database has acknowledged a commit.
    pub(super) fn acknowledged(&self, commit: C) {
        let mut state = self.state();
        if state.commits.len() == REMEMBERED {
            state.commits.pop_front();
        }
        state.commits.push_back(commit);
    }

    /// The leases of these claims are released: from now on they are no evidence.
    pub(super) fn forget(&self, is_released: impl Fn(&C) -> bool) {
        self.state().commits.retain(|commit| !is_released(commit));
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A claim whose commit waits for no standby any more, because the wait was cancelled. A failover may lose it, and
/// with it the record that
/// its payments were sent: so they are not. Their leases expire, and their outcome is unknown then.
pub(super) fn unreplicated(rows: usize) -> LaneError {
    tracing::error!(
        event = "CLAIM_NOT_REPLICATED",
        rows,
        "the wait of a claim for the synchronous standby was cancelled: its payments are not sent, their leases expire"
    );
    LaneError::Unavailable("the claim was not replicated to the synchronous standby".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_an_earlier_epoch_is_refused() {
        let history = History::<u32>::new();
        history.see(3).unwrap();
        history.see(3).unwrap();
        let refused = history.see(2).unwrap_err().to_string();
        assert!(refused.contains("epoch 3") && refused.contains("--at-least 4"), "{refused}");
        history.see(5).unwrap();
        assert_eq!(history.remembered().0, Some(5));
    }

    #[test]
    fn the_last_commits_are_remembered_without_those_of_released_leases() {
        let history = History::new();
        (0..20).for_each(|commit| history.acknowledged(commit));
        history.forget(|commit| *commit == 13);
        assert_eq!(history.remembered().1, [12, 14, 15, 16, 17, 18, 19]);
    }

    #[test]
    fn a_new_epoch_ends_what_is_remembered() {
        let history = History::new();
        history.see(2).unwrap();
        history.acknowledged('a');
        history.see(2).unwrap();
        assert_eq!(history.remembered(), (Some(2), vec!['a']));
        history.see(3).unwrap();
        assert_eq!(history.remembered(), (Some(3), vec![]));
    }
}
