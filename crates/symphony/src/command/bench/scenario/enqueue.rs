//! Single enqueues, each in a transaction of its own, by so many clients, while relayers listen.

use super::senders::Senders;
use super::{Course, Failure, Fleet, Goods, Measurement, Notes, Plan};

pub(super) async fn run(course: &Course, plan: &Plan, goods: &Goods) -> Result<Measurement, Failure> {
    let fleet = Fleet::start(course, plan, Notes::Nothing)?;
    fleet.listen().await?;
    let senders = Senders::open(course, plan, goods).await?;
    let watch = course.watch().await?;
    let sent = senders.send(plan, goods).await?;
    let work = fleet.stop().await?;
    let share = watch.share(sent.count).await?;
    let measured = Measurement::new(plan, sent.count, sent.length, share);
    Ok(measured.with_times("call", &sent.times).with_relayers(&work))
}
