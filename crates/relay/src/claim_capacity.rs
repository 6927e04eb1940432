//! Limits on the number of rows that one claim may lease, in total and per route.

use std::collections::{BTreeMap, BTreeSet};

/// How many rows a claim may lease. A route without a limit set by [`with`](Self::with) has the
/// [`default_per_route`](Self::default_per_route).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimCapacity {
    total: usize,
    default_per_route: usize,
    per_route: BTreeMap<String, usize>,
    first_attempts: BTreeSet<String>,
}

impl ClaimCapacity {
    /// A total, and the limit of each route that has none set.
    #[must_use]
    pub fn new(total: usize, default_per_route: usize) -> Self {
        Self { total, default_per_route: default_per_route.min(total), ..Self::default() }
    }

    /// Sets the limit of one route.
    #[must_use]
    pub fn with(mut self, route: &str, limit: usize) -> Self {
        self.per_route.insert(route.to_owned(), limit.min(self.total));
        self
    }

    /// Asks for one row of a route whose rows may not be claimed otherwise: one that has not been attempted, if there is
    /// one. See [`takes_first_attempt`](Self::takes_first_attempt).
    #[must_use]
    pub fn with_first_attempt(mut self, route: &str) -> Self {
        self.per_route.insert(route.to_owned(), 0);
        if self.total > 0 {
            self.first_attempts.insert(route.to_owned());
        }
        self
    }

    /// The maximum number of rows.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// The maximum number of rows of one route.
    #[must_use]
    pub fn for_route(&self, route: &str) -> usize {
        self.per_route.get(route).copied().unwrap_or(self.default_per_route)
    }

    /// The limit of each route that is not in [`per_route`](Self::per_route).
    #[must_use]
    pub fn default_per_route(&self) -> usize {
        self.default_per_route
    }

    /// Whether the claim may take one row of this route beyond [`for_route`](Self::for_route), provided that it has not
    /// been attempted before. It tells whether a failing route works, which a row that has failed does not. Of several
    /// the lane takes one that is far from the rows that failed: the newest.
    ///
    /// A lane that cannot select such rows claims none.
    #[must_use]
    pub fn takes_first_attempt(&self, route: &str) -> bool {
        self.first_attempts.contains(route)
    }

    /// The routes for which [`takes_first_attempt`](Self::takes_first_attempt) is true.
    pub fn first_attempts(&self) -> impl Iterator<Item = &str> {
        self.first_attempts.iter().map(String::as_str)
    }

    /// How many rows of a route may be dispatched.
    pub(crate) fn most_of(&self, route: &str) -> usize {
        self.for_route(route) + usize::from(self.takes_first_attempt(route))
    }

    /// How many rows a claim that cannot select by route may take, if one does: of no route more than its limit. `None` if a
    /// route's limit is below half of the total, so that such a claim would return rows for which no slot is free.
    pub(crate) fn for_any_route<'a>(&self, routes: impl Iterator<Item = &'a str>) -> Option<usize> {
        let least = routes.map(|route| self.for_route(route)).min()?;
        (least * 2 >= self.total && least > 0).then_some(least)
    }

    /// The routes with a limit set, ordered by name.
    pub fn per_route(&self) -> impl Iterator<Item = (&str, usize)> {
        self.per_route.iter().map(|(route, limit)| (route.as_str(), *limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_route_has_more_capacity_than_the_total() {
        let capacity = ClaimCapacity::new(3, 10).with("wire", 5).with("ach", 0);
        let limit = |route| capacity.for_route(route);
        assert_eq!((limit("wire"), limit("ach"), limit("card")), (3, 0, 3));
    }

    #[test]
    fn a_route_that_takes_a_first_attempt_has_no_other_capacity() {
        let capacity = ClaimCapacity::new(3, 3).with_first_attempt("wire");
        assert_eq!((capacity.for_route("wire"), capacity.most_of("wire"), capacity.most_of("ach")), (0, 1, 3));
        assert!(!ClaimCapacity::new(0, 0).with_first_attempt("wire").takes_first_attempt("wire"));
    }
}
