//! From commit to dispatch, and from the call to dispatch, at a steady rate from one session.

use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;

use super::super::clock;
use super::super::scale::Times;
use super::{Course, Failure, Fleet, Goods, Measurement, Notes, Plan};

/// How much later than planned a call may be before it is counted from when it should have been: timers tick in milliseconds.
const LATE: Duration = Duration::from_millis(2);
/// What is sent within this time, but no more than a quarter of all, is for warming up.
const WARMING_UP: Duration = Duration::from_secs(1);

/// When one was asked for, and when it was committed.
struct Call {
    name: String,
    called: u64,
    committed: u64,
}

pub(super) async fn run(course: &Course, plan: &Plan, goods: &Goods) -> Result<Measurement, Failure> {
    let fleet = Fleet::start(course, plan, Notes::Dispatches)?;
    fleet.listen().await?;
    let watch = course.watch().await?;
    let began = Instant::now();
    let calls = send(course, plan, goods).await?;
    let length = began.elapsed();
    let count = goods.sent();
    fleet.record(count, |_| {}).await?;
    let work = fleet.stop().await?;
    let share = watch.share(count).await?;
    let rate = plan.rate.unwrap_or(1);
    let warming_up =
        usize::try_from(rate).unwrap_or_default() * usize::try_from(WARMING_UP.as_secs()).unwrap_or(1);
    let (mut from_commit, mut from_call) = (Times::new()?, Times::new()?);
    for call in calls.iter().skip(warming_up.min(calls.len() / 4)) {
        let Some(dispatched) = work.times.get(&call.name) else {
            return Err(Failure::no(format!("{} was never dispatched", call.name)));
        };
        from_commit.note(Duration::from_nanos(dispatched.saturating_sub(call.committed)));
        from_call.note(Duration::from_nanos(dispatched.saturating_sub(call.called)));
    }
    let mut measured = Measurement::new(plan, count, length, share).with_times("commit_to_dispatch", &from_commit);
    measured.call_to_dispatch = from_call.percentiles();
    Ok(measured.with_relayers(&work))
}

async fn send(course: &Course, plan: &Plan, goods: &Goods) -> Result<Vec<Call>, Failure> {
    let sender = goods.sender(course.target().connect().await?).await?;
    let period = Duration::from_secs(1) / plan.rate.unwrap_or(1).max(1);
    let mut turns = tokio::time::interval(period);
    // Those that a slow call has held up are not left out: they were due, and waited.
    turns.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let end = Instant::now() + plan.length;
    let mut calls = Vec::new();
    while Instant::now() < end && plan.count.is_none_or(|count| goods.sent() < count) {
        let due = turns.tick().await;
        let late = due.elapsed();
        let late = if late > LATE { u64::try_from(late.as_nanos()).unwrap_or_default() } else { 0 };
        let called = clock::now().saturating_sub(late);
        let name = goods.send(&sender).await?;
        calls.push(Call { name, called, committed: clock::now() });
    }
    Ok(calls)
}
