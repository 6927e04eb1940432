//! Remembers the last commits that the database has acknowledged to this process, and asks each new session for them.
//!
//! WAL is a prefix: if a commit is there, none before it is lost. If it is not, the server has lost history, whatever its
//! identity says, and a new epoch is opened before this process claims there. The rule is in SQL: `check_worker_history`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use symphony_db::payment::worker::Commit;

/// Calls run side by side, and the one that was acknowledged last need not have been committed last. So a few are
/// remembered, and each of them must be there.
const REMEMBERED: usize = 8;

/// The last acknowledged commits, and the newest epoch that any server has shown.
#[derive(Debug)]
pub struct History<C = Commit> {
    state: Mutex<State<C>>,
}

#[derive(Debug)]
struct State<C> {
    epoch: Option<i64>,
    /// The newest last.
    commits: VecDeque<C>,
    /// Those of them that are completions, or were: the newest last.
    completions: VecDeque<C>,
}

/// What of a history outlives the process: the newest epoch, and the last completions. Claims are left out, because a lease
/// that is released after this was saved is no evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedHistory<C = Commit> {
    /// The newest epoch that any server has shown.
    pub epoch: Option<i64>,
    /// The last acknowledged completions of this worker, the newest last.
    pub completions: Vec<C>,
}

impl<C> Default for SavedHistory<C> {
    fn default() -> Self {
        Self { epoch: None, completions: Vec::new() }
    }
}

impl<C: Copy> History<C> {
    /// The history of a process that goes on where another of the same worker has ended.
    #[must_use]
    pub fn new(saved: SavedHistory<C>) -> Self {
        let completions: VecDeque<C> = saved.completions.into_iter().collect();
        Self { state: Mutex::new(State { epoch: saved.epoch, commits: completions.clone(), completions }) }
    }

    /// What to save now.
    #[must_use]
    pub fn to_save(&self) -> SavedHistory<C> {
        let state = self.state();
        SavedHistory { epoch: state.epoch, completions: state.completions.iter().copied().collect() }
    }

    /// What a new session is asked for.
    pub(super) fn remembered(&self) -> (Option<i64>, Vec<C>) {
        let state = self.state();
        (state.epoch, state.commits.iter().copied().collect())
    }

    /// A claim was made in this epoch. After another one the commits are forgotten: it may be the answer to their loss, and the
    /// next session must not be asked for them again.
    pub(super) fn see(&self, epoch: i64) {
        let mut state = self.state();
        if state.epoch.replace(epoch) != Some(epoch) {
            state.commits.clear();
            state.completions.clear();
        }
    }

    /// The database has acknowledged a claim.
    pub(super) fn claimed(&self, commit: C) {
        push(&mut self.state().commits, commit);
    }

    /// The database has acknowledged a completion.
    pub(super) fn completed(&self, commit: C) {
        let mut state = self.state();
        push(&mut state.commits, commit);
        push(&mut state.completions, commit);
    }

    /// The leases of these claims are released: from now on they are no evidence.
    pub(super) fn forget(&self, is_released: impl Fn(&C) -> bool) {
        self.state().commits.retain(|commit| !is_released(commit));
    }

    fn state(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push<C>(commits: &mut VecDeque<C>, commit: C) {
    if commits.len() == REMEMBERED {
        commits.pop_front();
    }
    commits.push_back(commit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_commits_are_remembered_without_those_of_released_leases() {
        let history = History::new(SavedHistory::default());
        (0..20).for_each(|commit| history.claimed(commit));
        history.forget(|commit| *commit == 13);
        assert_eq!(history.remembered().1, [12, 14, 15, 16, 17, 18, 19]);
    }

    #[test]
    fn a_new_epoch_ends_what_is_remembered() {
        let history = History::new(SavedHistory::default());
        history.see(2);
        history.claimed('a');
        history.see(2);
        assert_eq!(history.remembered(), (Some(2), vec!['a']));
        history.see(3);
        assert_eq!(history.remembered(), (Some(3), vec![]));
    }

    #[test]
    fn completions_of_the_newest_epoch_are_saved_and_a_later_process_asks_for_them() {
        let history = History::new(SavedHistory::default());
        history.see(2);
        history.completed(1);
        history.see(3);
        (2..30).for_each(|commit| history.completed(commit));
        // Many claims without a result do not replace what may be saved.
        (30..50).for_each(|commit| history.claimed(commit));
        let saved = history.to_save();
        assert_eq!(saved, SavedHistory { epoch: Some(3), completions: (22..30).collect() });
        let later = History::new(saved.clone());
        assert_eq!(later.remembered(), (Some(3), saved.completions.clone()));
        later.see(3);
        assert_eq!(later.to_save(), saved, "what was saved is saved again");
    }
}
