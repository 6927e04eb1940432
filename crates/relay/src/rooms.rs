//! How many jobs a claim may bring, in all and for each route.

use std::collections::BTreeMap;

/// What a claim may bring. A route that is not named has room for [`Rooms::elsewhere`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rooms {
    total: usize,
    elsewhere: usize,
    named: BTreeMap<String, usize>,
}

impl Rooms {
    /// Room for so many in all, and for each route as many as `elsewhere`.
    #[must_use]
    pub fn new(total: usize, elsewhere: usize) -> Self {
        Self { total, elsewhere: elsewhere.min(total), named: BTreeMap::new() }
    }

    /// Sets the room of one route.
    #[must_use]
    pub fn with(mut self, route: &str, room: usize) -> Self {
        self.named.insert(route.to_owned(), room.min(self.total));
        self
    }

    /// The most that a claim may bring.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// The most that it may bring of one route.
    #[must_use]
    pub fn of(&self, route: &str) -> usize {
        self.named.get(route).copied().unwrap_or(self.elsewhere)
    }

    /// The most that it may bring of each route that is not [`named`](Self::named).
    #[must_use]
    pub fn elsewhere(&self) -> usize {
        self.elsewhere
    }

    /// The routes whose room is their own, with that room, in the order of their names.
    pub fn named(&self) -> impl Iterator<Item = (&str, usize)> {
        self.named.iter().map(|(route, room)| (route.as_str(), *room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_route_has_more_room_than_there_is_in_all() {
        let rooms = Rooms::new(3, 10).with("wire", 5).with("ach", 0);
        assert_eq!((rooms.of("wire"), rooms.of("ach"), rooms.of("card")), (3, 0, 3));
    }
}
