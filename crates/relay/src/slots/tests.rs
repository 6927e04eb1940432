use super::*;

fn none<'a>() -> impl Iterator<Item = (&'a Arc<str>, ClaimLimit)> {
    std::iter::empty()
}

/// 64 slots for several routes.
struct Shared {
    slots: Slots,
    now: Instant,
}

impl Shared {
    fn new() -> Self {
        Self { slots: Slots::new(64, 3, BTreeMap::new(), 500), now: Instant::now() }
    }

    fn capacity(&self) -> ClaimCapacity {
        self.slots.capacity(0, none(), self.now)
    }

    fn limit(&self, route: &str) -> usize {
        self.capacity().for_route(route)
    }

    fn take(&mut self, route: &str, count: usize) {
        for _ in 0..count {
            self.slots.take(&Arc::from(route), self.now);
        }
    }

    /// A dispatch of this route ends at once.
    fn finish_quickly(&mut self, route: &str) {
        self.take(route, 1);
        self.slots.free(&Arc::from(route), self.now, self.now);
    }
}

#[test]
fn capacity_is_the_free_slots_within_the_batch_and_the_limits_of_routes_and_breakers() {
    let mut slots = Slots::new(6, 1, BTreeMap::from([("wire".to_owned(), 2)]), 5);
    let (wire, ach, now): (Arc<str>, Arc<str>, _) = (Arc::from("wire"), Arc::from("ach"), Instant::now());
    assert_eq!(slots.capacity(0, none(), now), ClaimCapacity::new(5, 5).with("wire", 2));
    slots.take(&wire, now);
    slots.take(&ach, now);
    assert_eq!(slots.capacity(2, none(), now), ClaimCapacity::new(4, 4).with("wire", 1));
    assert_eq!(slots.capacity(2, [(&ach, ClaimLimit::Nothing)].into_iter(), now).for_route("ach"), 0);
    assert_eq!(slots.capacity(2, [(&ach, ClaimLimit::One)].into_iter(), now).for_route("ach"), 1);
    let probe = slots.capacity(2, [(&ach, ClaimLimit::FirstAttempt)].into_iter(), now);
    assert_eq!((probe.for_route("ach"), probe.takes_first_attempt("ach")), (0, true));
    assert_eq!(slots.capacity(11, none(), now).total(), 1, "unrecorded outcomes count");
    slots.take(&wire, now);
    let full = slots.capacity(3, [(&wire, ClaimLimit::FirstAttempt)].into_iter(), now);
    assert!(!full.takes_first_attempt("wire"), "a probe needs a slot of its route too");
    slots.free(&wire, now, now);
    assert_eq!((slots.free(&wire, now, now), slots.capacity(1, none(), now).for_route("wire")), (0, 2));
}

#[test]
fn a_route_is_saturated_when_a_claim_reached_its_limit() {
    let mut slots = Slots::new(6, 1, BTreeMap::from([("wire".to_owned(), 2)]), 5);
    let now = Instant::now();
    let capacity = slots.capacity(0, none(), now);
    slots.record_claim(&capacity, &HashMap::from([(Arc::from("wire"), 2)]));
    assert!(slots.is_awaited("wire", now) && !slots.is_awaited("ach", now));
    slots.record_claim(&capacity, &HashMap::from([(Arc::from("wire"), 1)]));
    assert!(!slots.is_awaited("wire", now));
}

#[test]
fn routes_that_are_not_quick_share_three_quarters_of_the_slots() {
    let mut shared = Shared::new();
    assert_eq!(shared.limit("a"), 1, "its first dispatch shows whether it is quick");
    shared.take("a", 1);
    assert_eq!(shared.limit("a"), 47);
    shared.take("a", 47);
    assert_eq!((shared.limit("a"), shared.limit("b")), (0, 1));
    shared.take("b", 1);
    assert_eq!((shared.limit("b"), shared.limit("c"), shared.capacity().total()), (0, 1, 15));
    for _ in 0..3 {
        shared.slots.free(&Arc::from("a"), shared.now, shared.now + 2 * QUICK);
    }
    shared.now += 2 * QUICK;
    assert_eq!((shared.limit("a"), shared.limit("b")), (1, 1), "each an equal share");
}

#[test]
fn a_quick_route_leaves_few_slots_to_others_until_it_hangs() {
    let mut shared = Shared::new();
    shared.finish_quickly("a");
    assert_eq!(shared.limit("a"), 60);
    shared.take("a", 60);
    assert_eq!((shared.limit("a"), shared.limit("b")), (0, 1));
    shared.finish_quickly("b");
    assert_eq!(shared.limit("b"), 4);
    shared.now += QUICK;
    shared.take("b", 1);
    assert_eq!(shared.slots.free(&Arc::from("a"), shared.now - QUICK, shared.now), 59);
    assert_eq!(shared.slots.free(&Arc::from("a"), shared.now - QUICK, shared.now), 58);
    assert_eq!(shared.limit("a"), 1, "the others are not late yet");
    shared.now += Duration::from_millis(1);
    assert_eq!((shared.limit("a"), shared.limit("b")), (0, 1), "58 is more than its share");
}

#[test]
fn a_few_dispatches_that_take_long_do_not_make_a_route_slow() {
    let mut shared = Shared::new();
    shared.finish_quickly("a");
    shared.take("a", 10);
    shared.now += 2 * QUICK;
    shared.take("a", 30);
    assert_eq!(shared.limit("a"), 20);
    shared.take("a", 1);
    let late = shared.now - 2 * QUICK;
    shared.slots.free(&Arc::from("a"), late, shared.now);
    assert_eq!(shared.limit("a"), 8, "until the next quick end, which is soon");
    shared.slots.free(&Arc::from("a"), shared.now, shared.now);
    assert_eq!(shared.limit("a"), 21);
}

#[test]
fn a_single_route_and_a_single_slot_have_no_reserve() {
    for (slots, routes) in [(64, 1), (1, 3)] {
        let mut slots = Slots::new(slots, routes, BTreeMap::new(), 500);
        let (a, now) = (Arc::from("a"), Instant::now());
        while slots.capacity(0, none(), now).for_route("a") > 0 {
            slots.take(&a, now);
        }
        assert_eq!(slots.capacity(0, none(), now).total(), 0);
    }
}

#[test]
fn slots_of_slow_routes_are_awaited_by_each_other() {
    let mut shared = Shared::new();
    shared.take("a", 48);
    shared.take("b", 1);
    shared.finish_quickly("c");
    let capacity = shared.capacity();
    shared.slots.record_claim(&capacity, &HashMap::from([(Arc::from("c"), 3)]));
    assert!(shared.slots.is_awaited("a", shared.now) && !shared.slots.is_awaited("c", shared.now));
    assert!(!shared.slots.has_capacity_for_saturated(&shared.capacity()));

    let mut shared = Shared::new();
    let capacity = shared.capacity();
    shared.take("a", 1);
    shared.slots.record_claim(&capacity, &HashMap::from([(Arc::from("a"), 1)]));
    assert!(shared.slots.has_capacity_for_saturated(&shared.capacity()), "its share is larger than its first row");
}
