//! Enqueues and relayers at once, as in a day's work: how fast each is, and who falls behind.

use super::super::result::rate;
use super::senders::Senders;
use super::{Course, Failure, Fleet, Goods, Measurement, Plan};

pub(super) async fn run(course: &Course, plan: &Plan, goods: &Goods) -> Result<Measurement, Failure> {
    let fleet = Fleet::start(course, plan, false)?;
    fleet.listen().await?;
    let senders = Senders::open(course, plan, goods).await?;
    let watch = course.watch().await?;
    let before = fleet.recorded()?;
    let sent = senders.send(plan, goods).await?;
    let recorded = fleet.recorded()?;
    let work = fleet.stop().await?;
    let share = watch.share(sent.count).await?;
    let measured = Measurement::new(plan, recorded - before, sent.length, share);
    Ok(Measurement {
        enqueued: Some(sent.count),
        enqueued_per_second: Some(rate(sent.count, sent.length)),
        backlog: Some(goods.sent().saturating_sub(recorded)),
        ..measured.with_times("call", &sent.times).with_relayers(work.cpu_seconds)
    })
}
