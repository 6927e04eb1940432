//! Routing of metadata: the first route that matches the type of the entity decides the store.

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The entity type, or `*` for any.
    pub entity_type: String,
    /// The name of the store.
    pub store: String,
}

/// The routes in order: the first that matches wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// Routes in this order.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// The routes, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.iter()
    }

    /// The stores that the routes name.
    pub fn stores(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|route| route.store.as_str())
    }

    /// The store of entities of this type.
    pub(super) fn resolve(&self, entity_type: &str) -> Option<&str> {
        let matches = |route: &&Route| route.entity_type == "*" || route.entity_type == entity_type;
        self.0.iter().find(matches).map(|route| route.store.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_matching_route_wins() {
        let route =
            |entity_type: &str, store: &str| Route { entity_type: entity_type.into(), store: store.into() };
        let routes =
            Routes::new(vec![route("document", "search"), route("*", "cache"), route("picture", "never")]);
        assert_eq!(routes.resolve("document"), Some("search"));
        assert_eq!(routes.resolve("picture"), Some("cache"));
        assert_eq!(routes.stores().collect::<Vec<_>>(), ["search", "cache", "never"]);
        assert_eq!(Routes::new(vec![route("document", "search")]).resolve("picture"), None);
    }
}
