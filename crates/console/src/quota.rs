//! Limits on concurrent work: one limit for all callers and a smaller one per token, so that one token cannot use up
//! the capacity of the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::access::Caller;

/// A limited number of permits for one kind of work.
pub(crate) struct Quota {
    total: usize,
    per_token: usize,
    in_use: Mutex<InUse>,
}

#[derive(Default)]
struct InUse {
    all: usize,
    /// By the name of the token.
    by_token: HashMap<String, usize>,
}

/// The right to do one piece of work. Dropping it returns it.
pub(crate) struct Permit {
    quota: Arc<Quota>,
    token: Option<String>,
}

impl Quota {
    pub(crate) fn new(total: usize, per_token: usize) -> Arc<Self> {
        Arc::new(Self { total, per_token, in_use: Mutex::default() })
    }

    /// A permit, or none if the limit is reached. Without tokens only the limit for all callers applies.
    pub(crate) fn try_acquire(self: &Arc<Self>, caller: &Caller) -> Option<Permit> {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if in_use.all >= self.total {
            return None;
        }
        if let Some(token) = &caller.name {
            let of_token = in_use.by_token.entry(token.clone()).or_default();
            if *of_token >= self.per_token {
                return None;
            }
            *of_token += 1;
        }
        in_use.all += 1;
        Some(Permit { quota: Arc::clone(self), token: caller.name.clone() })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut in_use = self.quota.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.all -= 1;
        if let Some(token) = &self.token
            && let Some(of_token) = in_use.by_token.get_mut(token)
        {
            *of_token -= 1;
            if *of_token == 0 {
                in_use.by_token.remove(token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::caller_with_token;

    #[test]
    fn no_token_gets_more_than_its_share() {
        let (ana, bo, cy) = (caller_with_token("ana"), caller_with_token("bo"), caller_with_token("cy"));
        let quota = Quota::new(3, 2);
        let held = [quota.try_acquire(&ana).unwrap(), quota.try_acquire(&ana).unwrap()];
        assert!(quota.try_acquire(&ana).is_none());
        let other = quota.try_acquire(&bo).unwrap();
        assert!(quota.try_acquire(&cy).is_none(), "all three permits are in use");
        drop(held);
        assert!(quota.try_acquire(&ana).is_some() && quota.try_acquire(&cy).is_some());
        drop(other);
        assert!(quota.in_use.lock().unwrap().by_token.is_empty());
    }
}
