//! Finds the transaction that has held the policies of the rails for long.
//!
//! Claims and completions hold them for milliseconds. What waits for a transaction that is left open gives up after a few seconds
//! and comes again, so no single wait shows it. The server tells no login since when another's transaction is open: so this
//! remembers when it has seen each for the first time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use symphony_db::locks::RailPolicyHolder;

/// The transactions of the last read, and when each was seen first.
#[derive(Debug, Default)]
pub(super) struct LockHolders {
    first_seen: HashMap<String, Instant>,
}

impl LockHolders {
    /// The holders at this moment; returns the one that was seen first, and for how long it is known.
    pub(super) fn seen(
        &mut self,
        holders: Vec<RailPolicyHolder>,
        at: Instant,
    ) -> Option<(RailPolicyHolder, Duration)> {
        let before = std::mem::take(&mut self.first_seen);
        for holder in &holders {
            let key = &holder.transaction_key;
            self.first_seen.insert(key.clone(), before.get(key).copied().unwrap_or(at));
        }
        let longest =
            holders.into_iter().min_by_key(|holder| self.first_seen.get(&holder.transaction_key).copied())?;
        let first = self.first_seen.get(&longest.transaction_key).copied()?;
        Some((longest, at.saturating_duration_since(first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_transaction_that_is_seen_again_is_held_for_long() {
        let (mut holders, start) = (LockHolders::default(), Instant::now());
        let holder =
            |key: &str| RailPolicyHolder { pid: 7, application: "worker".into(), transaction_key: key.into() };
        let mut seen = |keys: &[&str], seconds: u64| {
            let found =
                holders.seen(keys.iter().map(|key| holder(key)).collect(), start + Duration::from_secs(seconds));
            found.map(|(holder, held)| (holder.transaction_key, held.as_secs()))
        };
        assert_eq!(seen(&["3/1", "4/1"], 0).unwrap().1, 0);
        // The session of 4/1 has another transaction.
        assert_eq!(seen(&["4/2", "3/1"], 10), Some(("3/1".into(), 10)));
        assert_eq!(seen(&["3/1"], 40), Some(("3/1".into(), 40)));
        assert_eq!(seen(&[], 50), None);
        assert_eq!(seen(&["3/1"], 60).unwrap().1, 0);
    }
}
