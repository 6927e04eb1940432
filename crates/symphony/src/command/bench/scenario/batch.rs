//! Many in one transaction, over a few sessions at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio_postgres::Client;

use super::super::scale::Times;
use super::{Course, Failure, Fleet, Goods, Measurement, Plan};

pub(super) async fn run(course: &Course, plan: &Plan, goods: &Goods) -> Result<Measurement, Failure> {
    let fleet = Fleet::start(course, plan, false)?;
    fleet.listen().await?;
    let watch = course.watch().await?;
    let (length, times) = fill(course, plan, goods, |_| {}).await?;
    let work = fleet.stop().await?;
    let share = watch.share(goods.sent()).await?;
    let measured = Measurement::new(plan, goods.sent(), length, share);
    Ok(measured.with_times("transaction", &times).with_relayers(work.cpu_seconds))
}

/// Sends as many as planned, and tells how far it is. How long it took, and how long each transaction did.
pub(super) async fn fill(
    course: &Course,
    plan: &Plan,
    goods: &Goods,
    tell: impl Fn(u64),
) -> Result<(Duration, Times), Failure> {
    let mut clients = Vec::new();
    for _ in 0..plan.clients {
        clients.push(course.target().connect().await?);
    }
    let left = AtomicU64::new(plan.count.unwrap_or_default());
    let senders = u64::try_from(clients.len()).unwrap_or(u64::MAX);
    let began = Instant::now();
    let work = (0..).zip(&mut clients).map(|(number, client)| {
        let (left, tell) = (&left, &tell);
        one(client, goods, plan.batch, left, (number, senders), tell)
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
    client: &mut Client,
    goods: &Goods,
    batch: u64,
    left: &AtomicU64,
    sender: (u64, u64),
    tell: &impl Fn(u64),
) -> Result<Times, Failure> {
    let mut times = Times::new()?;
    loop {
        let take = |left: u64| (left > 0).then(|| left.saturating_sub(batch));
        let Ok(before) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) else {
            return Ok(times);
        };
        let called = Instant::now();
        goods.send_many(client, before.min(batch), sender).await?;
        times.note(called.elapsed());
        tell(goods.sent());
    }
}
