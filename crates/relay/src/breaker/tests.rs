use super::*;

const FIRST: Attempt = Attempt { probe: false, is_first: true };
const AGAIN: Attempt = Attempt { probe: false, is_first: false };
const FIRST_PROBE: Attempt = Attempt { probe: true, is_first: true };
const PROBE_AGAIN: Attempt = Attempt { probe: true, is_first: false };

struct Test {
    breakers: Breakers,
    wire: Arc<str>,
    now: Instant,
}

impl Test {
    fn new(policy: Policy) -> Self {
        Self { breakers: Breakers::new(policy), wire: Arc::from("wire"), now: Instant::now() }
    }

    /// A breaker that is half-open after one failure.
    fn half_open() -> Self {
        let mut test = Self::new(Policy { failures: 1, ..Policy::default() });
        assert_eq!(test.record(FIRST, RouteSignal::Failing), Some(BreakerState::HalfOpen));
        test
    }

    fn record(&mut self, attempt: Attempt, signal: RouteSignal) -> Option<BreakerState> {
        self.breakers.record_result(&self.wire, attempt, signal, self.now)
    }

    fn fail(&mut self, attempt: Attempt) -> Option<BreakerState> {
        self.record(attempt, RouteSignal::Failing)
    }

    /// Starts a probe, which fails.
    fn fail_probe(&mut self, attempt: Attempt) -> Option<BreakerState> {
        assert_eq!(self.breakers.admit("wire", attempt.is_first), Admission::Probe);
        self.fail(attempt)
    }

    fn fail_all_probes(&mut self, attempt: Attempt) {
        for _ in 1..PROBES {
            assert_eq!(self.fail_probe(attempt), None);
            assert!(self.breakers.wants_probe("wire"));
        }
        assert_eq!(self.fail_probe(attempt), Some(BreakerState::Open));
    }

    fn limit(&self) -> Option<ClaimLimit> {
        self.breakers.limits().find(|(name, _)| &***name == "wire").map(|(_, limit)| limit)
    }
}

#[test]
fn only_failures_in_a_row_make_a_route_suspect() {
    let mut test = Test::new(Policy::default());
    for _ in 0..4 {
        assert_eq!(test.fail(FIRST), None);
    }
    assert_eq!(test.record(FIRST, RouteSignal::Healthy), None);
    for signal in [
        RouteSignal::Failing,
        RouteSignal::Failing,
        RouteSignal::Neutral,
        RouteSignal::Failing,
        RouteSignal::Failing,
    ] {
        assert_eq!(test.record(FIRST, signal), None);
    }
    assert_eq!(test.breakers.admit("wire", true), Admission::Start);
    assert_eq!(test.fail(FIRST), Some(BreakerState::HalfOpen));
    assert_eq!(test.limit(), Some(ClaimLimit::FirstAttempt));
    assert_eq!(test.breakers.limits().count(), 1, "other routes are not limited");
    assert_eq!(
        (test.breakers.admit("wire", true), test.breakers.admit("wire", true)),
        (Admission::Probe, Admission::Refuse)
    );
}

#[test]
fn rows_that_fail_again_count_only_when_nothing_else_arrives_for_a_pause() {
    let mut test = Test::new(Policy::default());
    for _ in 0..1000 {
        assert_eq!(test.fail(AGAIN), None);
    }
    test.record(AGAIN, RouteSignal::Healthy);
    for step in 1..=9 {
        assert_eq!(test.fail(AGAIN), None, "{step}");
        test.now += Duration::from_millis(111);
    }
    test.now += Duration::from_millis(1);
    assert_eq!(test.fail(AGAIN), Some(BreakerState::HalfOpen));
}

#[test]
fn the_pause_doubles_with_each_round_of_failed_probes_up_to_the_longest_and_resets_after_a_success() {
    let mut test = Test::half_open();
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        test.fail_all_probes(FIRST_PROBE);
        assert_eq!(
            (test.limit(), test.breakers.admit("wire", true)),
            (Some(ClaimLimit::Nothing), Admission::Refuse)
        );
        assert_eq!(test.breakers.next_deadline(), Some(test.now + Duration::from_secs(seconds)));
        assert!(test.breakers.tick(test.now + Duration::from_secs(seconds) - Duration::from_millis(1)).is_empty());
        test.now += Duration::from_secs(seconds);
        assert_eq!(test.breakers.tick(test.now).len(), 1);
        assert_eq!(test.limit(), Some(ClaimLimit::FirstAttempt));
    }
    test.breakers.admit("wire", true);
    assert_eq!(test.record(FIRST, RouteSignal::Healthy), None, "it started before the breaker opened");
    assert_eq!(test.record(FIRST_PROBE, RouteSignal::Healthy), Some(BreakerState::Closed));
    test.fail(FIRST);
    test.fail_all_probes(FIRST_PROBE);
    assert_eq!(test.breakers.next_deadline(), Some(test.now + Duration::from_secs(1)));
}

#[test]
fn one_answer_among_the_probes_closes_the_breaker() {
    let mut test = Test::half_open();
    test.fail_probe(FIRST_PROBE);
    test.fail_probe(FIRST_PROBE);
    test.breakers.admit("wire", true);
    assert_eq!(test.record(FIRST_PROBE, RouteSignal::Healthy), Some(BreakerState::Closed));
    assert_eq!(test.limit(), None);
}

#[test]
fn any_row_probes_when_there_is_none_that_was_not_attempted() {
    let mut test = Test::half_open();
    assert!(test.breakers.found_no_row("wire", ClaimLimit::FirstAttempt));
    assert_eq!(test.limit(), Some(ClaimLimit::One));
    assert!(!test.breakers.found_no_row("wire", ClaimLimit::One), "there is nothing to claim at once");
    assert_eq!(test.limit(), Some(ClaimLimit::FirstAttempt), "a row that comes later may be one");
    assert!(test.breakers.found_no_row("wire", ClaimLimit::FirstAttempt));
    test.fail_probe(PROBE_AGAIN);
    assert_eq!(test.limit(), Some(ClaimLimit::FirstAttempt), "each probe asks anew");
    assert!(!test.breakers.found_no_row("ach", ClaimLimit::FirstAttempt));
}

#[test]
fn after_probes_that_had_failed_before_a_first_attempt_may_probe_early_once() {
    let mut test = Test::half_open();
    test.fail_all_probes(PROBE_AGAIN);
    assert_eq!(test.limit(), Some(ClaimLimit::FirstAttempt));
    assert!(
        !test.breakers.found_no_row("wire", ClaimLimit::FirstAttempt),
        "other rows wait for the end of the pause"
    );
    assert_eq!(test.breakers.admit("wire", false), Admission::Refuse);
    assert_eq!(test.breakers.admit("wire", true), Admission::Probe);
    assert_eq!((test.limit(), test.breakers.next_deadline()), (Some(ClaimLimit::Nothing), None));
    assert_eq!(test.fail(FIRST_PROBE), None);
    assert_eq!((test.limit(), test.breakers.admit("wire", true)), (Some(ClaimLimit::Nothing), Admission::Refuse));
    assert_eq!(test.breakers.next_deadline(), Some(test.now + Duration::from_secs(1)), "the pause is as it was");

    let mut test = Test::half_open();
    test.fail_all_probes(PROBE_AGAIN);
    test.breakers.admit("wire", true);
    assert_eq!(test.record(FIRST_PROBE, RouteSignal::Healthy), Some(BreakerState::Closed));
}

#[test]
fn after_a_probe_without_a_result_another_may_start() {
    let mut test = Test::half_open();
    test.breakers.admit("wire", true);
    assert_eq!(test.record(FIRST_PROBE, RouteSignal::Neutral), None);
    assert_eq!(test.limit(), Some(ClaimLimit::FirstAttempt));
    test.fail_all_probes(PROBE_AGAIN);
    test.breakers.admit("wire", true);
    test.record(FIRST_PROBE, RouteSignal::Neutral);
    assert_eq!(test.limit(), Some(ClaimLimit::FirstAttempt), "the early probe");
}
