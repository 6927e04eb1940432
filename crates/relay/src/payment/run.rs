//! Runs: payments of one participant that one claim leased on an ordered rail, dispatched one after the other.
//!
//! The first payment of a run is dispatched at once. A follower is dispatched when the payment before it has ended as
//! DISPATCHED at the rail, before the database has recorded that. It is not dispatched, and its lease is released, if
//! the payment before it ended in another way, if a lease of the run was lost, if an outcome of the run could not be
//! recorded, or if the run takes longer than [`MAX_RUN_TIME`]: a pause of the rail or a stop must take effect soon.
//!
//! A waiting follower occupies a slot. So followers take up to half of the free capacity, and only after a claim that left
//! capacity unused: while there are heads enough, all slots dispatch. A rail that answers within [`QUICK`] gets longer
//! runs, because a claim takes longer than they do. A slow rail gets no followers. Nor does a rail without inquiries: the
//! outcome of a follower whose relayer died is unknown, although it was never sent. The database decides which rows may
//! follow: `lock_run_followers`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use symphony_db::OutboxId;
use symphony_db::payment::worker::Claimed;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::claim_capacity::ClaimCapacity;

/// How long after its claim the last follower of a run may be dispatched.
const MAX_RUN_TIME: Duration = Duration::from_secs(1);
/// A rail whose last payment took longer gets no followers: few of them would be dispatched within [`MAX_RUN_TIME`].
const MAX_LATENCY: Duration = Duration::from_millis(250);

/// A rail whose last payment took at most this long gets runs of full length.
const QUICK: Duration = Duration::from_micros(500);
/// The longest run that the database leases.
const MAX_RUN: usize = 16;

/// How many followers a claim may lease, by rail.
#[derive(Debug, Default)]
pub(super) struct Followers {
    /// How long the last payment of each rail took, in microseconds; only of rails that may have followers.
    latencies_us: BTreeMap<String, AtomicU64>,
    waiting: Arc<AtomicUsize>,
    /// The last claim returned fewer rows than its capacity.
    has_spare_capacity: AtomicBool,
}

/// The place of a payment in a run. Dropping it stops the payments behind it.
#[derive(Debug)]
pub(super) struct RunPlace {
    run: Arc<Run>,
    before: Option<(oneshot::Receiver<()>, Waiting)>,
    next: Option<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Run {
    until: Instant,
    stopped: AtomicBool,
}

/// The run of a payment that has been dispatched: its outcome may still stop the rest.
#[derive(Clone, Debug)]
pub(super) struct RunEnd {
    run: Arc<Run>,
    is_last: bool,
}

/// Stops the runs of a completion when it is dropped before the completion has a result: the call failed or timed out.
#[derive(Debug)]
pub(super) struct StopRuns<'a> {
    runs: Vec<&'a RunEnd>,
}

/// Outcomes are compared without their runs.
impl PartialEq for RunEnd {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RunEnd {}

/// Counts a waiting follower until it is dropped.
#[derive(Debug)]
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Followers {
    /// For these rails. The others get no followers.
    pub(super) fn new<'a>(rails: impl Iterator<Item = &'a String>) -> Self {
        // Until the first payment, no rail counts as quick.
        let latency = || AtomicU64::new(u64::try_from(MAX_LATENCY.as_micros()).unwrap_or(u64::MAX));
        Self { latencies_us: rails.map(|rail| (rail.clone(), latency())).collect(), ..Self::default() }
    }

    /// How many followers of each rail a claim with this capacity may lease.
    pub(super) fn limits(&self, capacity: &ClaimCapacity) -> BTreeMap<String, u32> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        let has_spare_capacity = self.has_spare_capacity.load(Ordering::Relaxed);
        let limit = |(rail, latency_us): (&String, &AtomicU64)| {
            let latency = Duration::from_micros(latency_us.load(Ordering::Relaxed));
            let capacity = capacity.for_route(rail);
            let limit = if latency <= QUICK {
                capacity - capacity.div_ceil(MAX_RUN)
            } else if latency <= MAX_LATENCY && has_spare_capacity {
                capacity.saturating_sub(waiting) / 2
            } else {
                0
            };
            (limit > 0).then(|| (rail.clone(), u32::try_from(limit).unwrap_or(u32::MAX)))
        };
        self.latencies_us.iter().filter_map(limit).collect()
    }

    /// A claim with this capacity returned this many rows.
    pub(super) fn record_claim(&self, capacity: &ClaimCapacity, rows: usize) {
        self.has_spare_capacity.store(rows < capacity.total(), Ordering::Relaxed);
    }

    /// A payment of this rail took this long.
    pub(super) fn record_latency(&self, rail: &str, latency: Duration) {
        if let Some(latency_us) = self.latencies_us.get(rail) {
            latency_us.store(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// The places of the payments that are in a run, for a claim that has just returned. `run_rails` are the rails on
    /// which the payments of a participant are one.
    pub(super) fn places(&self, claimed: &[Claimed], run_rails: &BTreeSet<String>) -> HashMap<OutboxId, RunPlace> {
        let mut places = HashMap::new();
        if run_rails.is_empty() {
            return places;
        }
        let mut runs: HashMap<(&str, &str), Vec<&Claimed>> = HashMap::new();
        for payment in claimed.iter().filter(|payment| run_rails.contains(&payment.rail_type)) {
            runs.entry((&payment.rail_type, &payment.participant_id)).or_default().push(payment);
        }
        let until = Instant::now() + MAX_RUN_TIME;
        for mut payments in runs.into_values().filter(|payments| payments.len() > 1) {
            payments.sort_by_key(|payment| payment.sequence_id);
            let run = Arc::new(Run { until, stopped: AtomicBool::new(false) });
            let ids: Vec<_> = payments.into_iter().map(|payment| payment.outbox_id).collect();
            places.extend(ids.iter().copied().zip(self.chain(&run, ids.len())));
        }
        places
    }

    /// The places of a run of this length, the first first.
    fn chain(&self, run: &Arc<Run>, length: usize) -> Vec<RunPlace> {
        let mut before = None;
        let mut chain = Vec::with_capacity(length);
        for place in 1..=length {
            let (next, turn) = if place < length { Some(oneshot::channel()).unzip() } else { (None, None) };
            chain.push(RunPlace { run: Arc::clone(run), before: before.take(), next });
            before = turn.map(|turn| {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                (turn, Waiting(Arc::clone(&self.waiting)))
            });
        }
        chain
    }
}

impl RunPlace {
    /// Waits until the payment before has ended; whether this one may be dispatched.
    pub(super) async fn wait(&mut self) -> bool {
        let Some((before, _waiting)) = self.before.take() else { return true };
        let came = timeout_at(self.run.until, before).await;
        // The turn may have come while this task did not run.
        matches!(came, Ok(Ok(()))) && Instant::now() < self.run.until && !self.run.stopped.load(Ordering::Acquire)
    }

    /// The payment has ended. The next one is dispatched if the run may continue.
    pub(super) fn end(self, may_continue: bool) -> RunEnd {
        let is_last = self.next.is_none();
        if let Some(next) = self.next.filter(|_| may_continue) {
            // An error means that the next one has stopped waiting.
            let _ = next.send(());
        }
        RunEnd { run: self.run, is_last }
    }
}

impl RunEnd {
    /// An outcome of this run could not be recorded: no further payment of it is dispatched.
    pub(super) fn stop(&self) {
        self.run.stopped.store(true, Ordering::Release);
    }

    /// Whether it was the last payment of its run: more of the participant may be claimable now.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }
}

impl<'a> StopRuns<'a> {
    pub(super) fn unless_recorded(runs: impl Iterator<Item = &'a RunEnd>) -> Self {
        Self { runs: runs.collect() }
    }

    /// The completion has a result for each payment.
    pub(super) fn recorded(mut self) {
        self.runs.clear();
    }
}

impl Drop for StopRuns<'_> {
    fn drop(&mut self) {
        self.runs.iter().for_each(|run| run.stop());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(length: usize) -> (Followers, Vec<RunPlace>) {
        let followers = Followers::new([&"sepa".to_owned()].into_iter());
        followers.record_claim(&ClaimCapacity::new(2, 2), 1);
        let run = Arc::new(Run { until: Instant::now() + MAX_RUN_TIME, stopped: AtomicBool::new(false) });
        let chain = followers.chain(&run, length);
        (followers, chain)
    }

    fn limit(followers: &Followers, capacity: usize) -> Option<u32> {
        followers.limits(&ClaimCapacity::new(capacity, capacity)).get("sepa").copied()
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_goes_when_the_payment_before_it_was_dispatched() {
        let (followers, chain) = run(3);
        let [mut first, mut second, mut third] = <[_; 3]>::try_from(chain).unwrap();
        assert_eq!(limit(&followers, 12), Some(5), "two wait");
        assert!(first.wait().await);
        let ended = first.end(true);
        assert!(!ended.is_last() && second.wait().await);
        assert_eq!(limit(&followers, 12), Some(5), "one waits");
        let ended = second.end(true);
        assert!(!ended.is_last() && third.wait().await);
        assert!(third.end(true).is_last());
        assert_eq!(limit(&followers, 12), Some(6));
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_run_does_not_go_after_any_other_end() {
        type End = fn(RunPlace);
        let ends: [End; 4] = [
            // It did not end as DISPATCHED, or its lease is about to expire.
            |first| drop(first.end(false)),
            // It was cancelled, panicked or was never started.
            |first| drop(first),
            // It was dispatched, but its outcome was refused.
            |first| first.end(true).stop(),
            // It was dispatched, but the call that records its outcome failed or timed out.
            |first| drop(StopRuns::unless_recorded([&first.end(true)].into_iter())),
        ];
        for end in ends {
            let (followers, chain) = run(3);
            let [first, mut second, mut third] = <[_; 3]>::try_from(chain).unwrap();
            end(first);
            assert!(!second.wait().await);
            drop(second);
            assert!(!third.wait().await);
            assert_eq!(limit(&followers, 12), Some(6), "none waits");
        }
        let (_, chain) = run(2);
        let [first, mut second] = <[_; 2]>::try_from(chain).unwrap();
        StopRuns::unless_recorded([&first.end(true)].into_iter()).recorded();
        assert!(second.wait().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_follower_does_not_wait_longer_than_a_run_may_take() {
        let (_, chain) = run(2);
        let [first, mut second] = <[_; 2]>::try_from(chain).unwrap();
        let began = Instant::now();
        assert!(!second.wait().await);
        assert_eq!(began.elapsed(), MAX_RUN_TIME);
        drop(first);

        // The task of the follower did not run when its turn came.
        let (_, chain) = run(2);
        let [first, mut second] = <[_; 2]>::try_from(chain).unwrap();
        first.end(true);
        tokio::time::advance(MAX_RUN_TIME).await;
        assert!(!second.wait().await);
    }

    #[test]
    fn followers_depend_on_the_latency_of_the_rail_and_on_spare_capacity() {
        let followers = Followers::new([&"sepa".to_owned()].into_iter());
        assert_eq!(limit(&followers, 12), None, "there may be heads enough");
        followers.record_latency("sepa", QUICK);
        assert_eq!(
            (limit(&followers, 64), limit(&followers, 17), limit(&followers, 1)),
            (Some(60), Some(15), None)
        );
        followers.record_latency("sepa", MAX_LATENCY);
        followers.record_claim(&ClaimCapacity::new(12, 12), 12);
        assert_eq!(limit(&followers, 12), None);
        followers.record_claim(&ClaimCapacity::new(12, 12), 11);
        assert_eq!(limit(&followers, 12), Some(6));
        followers.record_latency("sepa", MAX_LATENCY + Duration::from_millis(1));
        assert_eq!(limit(&followers, 12), None);
        followers.record_latency("sepa", MAX_LATENCY);
        assert_eq!(limit(&followers, 12), Some(6));
        followers.record_latency("swift", Duration::ZERO);
        assert_eq!(followers.limits(&ClaimCapacity::new(12, 12)).get("swift"), None);
    }
}
