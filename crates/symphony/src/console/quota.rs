//! Places that callers share: a number for all of them, and a smaller one for each token, so that no holder of a token takes
//! what others need.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::access::Caller;

/// Places of one kind.
pub(crate) struct Quota {
    total: usize,
    per_token: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    /// By the name of the token.
    by_token: HashMap<String, usize>,
}

/// A place that is taken until this is dropped.
pub(crate) struct Place {
    quota: Arc<Quota>,
    token: Option<String>,
}

impl Quota {
    pub(crate) fn new(total: usize, per_token: usize) -> Arc<Self> {
        Arc::new(Self { total, per_token, taken: Mutex::default() })
    }

    /// A place, if there is one. Where nobody shows a token, all callers are one, and may have all places.
    pub(crate) fn take(self: &Arc<Self>, caller: &Caller) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.all >= self.total {
            return None;
        }
        if let Some(token) = &caller.name {
            let of_token = taken.by_token.entry(token.clone()).or_default();
            if *of_token >= self.per_token {
                return None;
            }
            *of_token += 1;
        }
        taken.all += 1;
        Some(Place { quota: Arc::clone(self), token: caller.name.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.quota.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(token) = &self.token
            && let Some(of_token) = taken.by_token.get_mut(token)
        {
            *of_token -= 1;
            if *of_token == 0 {
                taken.by_token.remove(token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::access::holder_of_a_new_token;

    #[test]
    fn no_token_takes_more_than_its_own_share() {
        let (ana, bo, cy) =
            (holder_of_a_new_token("ana"), holder_of_a_new_token("bo"), holder_of_a_new_token("cy"));
        let quota = Quota::new(3, 2);
        let held = [quota.take(&ana).unwrap(), quota.take(&ana).unwrap()];
        assert!(quota.take(&ana).is_none());
        let other = quota.take(&bo).unwrap();
        assert!(quota.take(&cy).is_none(), "three are taken in all");
        drop(held);
        assert!(quota.take(&ana).is_some() && quota.take(&cy).is_some());
        drop(other);
        assert!(quota.taken.lock().unwrap().by_token.is_empty());
    }
}
