//! Routing of metadata: the first route that matches the type of the entity decides the store.

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The entity type, or `*` for any.
    pub entity_type: String,
    /// The store that gets it.
    pub store: String,
}

/// All rules, the first that fits wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// These rules, in this order.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// The stores that they name.
    pub fn stores(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|route| route.store.as_str())
    }

    /// The store of an entity of this type.
    pub(super) fn of(&self, entity_type: &str) -> Option<&str> {
        let fits = |route: &&Route| route.entity_type == "*" || route.entity_type == entity_type;
        self.0.iter().find(fits).map(|route| route.store.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_route_that_fits_wins() {
        let route =
            |entity_type: &str, store: &str| Route { entity_type: entity_type.into(), store: store.into() };
        let routes =
            Routes::new(vec![route("document", "search"), route("*", "cache"), route("picture", "never")]);
        assert_eq!(routes.of("document"), Some("search"));
        assert_eq!(routes.of("picture"), Some("cache"));
        assert_eq!(routes.stores().collect::<Vec<_>>(), ["search", "cache", "never"]);
        assert_eq!(Routes::new(vec![route("document", "search")]).of("picture"), None);
    }
}
