//! Limits on the number of rows that one claim may lease, in total and per route.

use std::collections::BTreeMap;

/// How many rows a claim may lease. A route without a limit set by [`with`](Self::with) has the
/// [`default_per_route`](Self::default_per_route).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimCapacity {
    total: usize,
    default_per_route: usize,
    per_route: BTreeMap<String, usize>,
}

impl ClaimCapacity {
    /// A total, and the limit of each route that has none set.
    #[must_use]
    pub fn new(total: usize, default_per_route: usize) -> Self {
        Self { total, default_per_route: default_per_route.min(total), per_route: BTreeMap::new() }
    }

    /// Sets the limit of one route.
    #[must_use]
    pub fn with(mut self, route: &str, limit: usize) -> Self {
        self.per_route.insert(route.to_owned(), limit.min(self.total));
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
}
