//! A backlog, sent before, that relayers carry away: from the first dispatch to the last record.

use super::{Course, Failure, Fleet, Goods, Measurement, Notes, Plan, batch};
use crate::progress;

/// How the backlog is sent, which is not timed.
const SENDERS: usize = 2;
const TOGETHER: u64 = 500;

pub(super) async fn run(course: &Course, plan: &Plan, goods: &Goods) -> Result<Measurement, Failure> {
    let count = plan.count.unwrap_or_default();
    let filling = Plan { clients: SENDERS, batch: TOGETHER, ..plan.clone() };
    batch::fill(course, &filling, goods, |sent| progress::say(&format!("drain: {sent} of {count} sent"))).await?;
    let watch = course.watch().await?;
    let fleet = Fleet::start(course, plan, Notes::Nothing)?;
    fleet.record(count, |recorded| progress::say(&format!("drain: {recorded} of {count} recorded"))).await?;
    let work = fleet.stop().await?;
    let share = watch.share(count).await?;
    Ok(Measurement::new(plan, count, work.length, share).with_relayers(&work))
}
