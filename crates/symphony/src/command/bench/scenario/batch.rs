//! Many in one transaction, over a few sessions at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;

use super::super::goods::Sender;
use super::super::scale::Times;
use super::{Course, Failure, Fleet, Goods, Measurement, Notes, Plan};

pub(super) async fn run(course: &Course, plan: &Plan, goods: &Goods) -> Result<Measurement, Failure> {
    let fleet = Fleet::start(course, plan, Notes::Nothing)?;
    fleet.listen().await?;
    let watch = course.watch().await?;
    let (length, times) = fill(course, plan, goods, |_| {}).await?;
    let work = fleet.stop().await?;
    let share = watch.share(goods.sent()).await?;
    let measured = Measurement::new(plan, goods.sent(), length, share);
    Ok(measured.with_times("transaction", &times).with_relayers(&work))
}

/// Sends as many as planned, and tells how far it is. How long it took, and how long each transaction did.
pub(super) async fn fill(
    course: &Course,
    plan: &Plan,
    goods: &Goods,
    tell: impl Fn(u64),
) -> Result<(Duration, Times), Failure> {
    let mut senders = Vec::new();
    for _ in 0..plan.clients {
        senders.push(goods.sender(course.target().connect().await?).await?);
    }
    let left = AtomicU64::new(plan.count.unwrap_or_default());
    let all = u64::try_from(senders.len()).unwrap_or(u64::MAX);
    let began = Instant::now();
    let work = (0..).zip(&mut senders).map(|(number, sender)| {
        let (left, tell) = (&left, &tell);
        one(sender, goods, plan.batch, left, (number, all), tell)
    });
    let all = try_join_all(work).await?;
    let length = began.elapsed();
    let mut times = Times::new()?;
    for one in &all {
        times.join(one)?;
    }
    Ok((length, times))
}

async fn one(
    sender: &mut Sender,
    goods: &Goods,
    batch: u64,
    left: &AtomicU64,
    place: (u64, u64),
    tell: &impl Fn(u64),
) -> Result<Times, Failure> {
    let mut times = Times::new()?;
    loop {
        let take = |left: u64| (left > 0).then(|| left.saturating_sub(batch));
        let Ok(before) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) else {
            return Ok(times);
        };
        let called = Instant::now();
        goods.send_many(sender, before.min(batch), place).await?;
        times.note(called.elapsed());
        tell(goods.sent());
    }
}
