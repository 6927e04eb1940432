//! The scenarios: each sends, lets relayers carry, and says how fast it was and what it took.

mod batch;
mod drain;
mod enqueue;
mod idle;
mod latency;
mod mixed;
mod senders;

use super::fleet::{Fleet, Notes};
use super::goods::Goods;
use super::ground::{Course, Ground};
use super::plan::{Plan, Scenario};
use super::result::Measurement;
use crate::failure::Failure;

/// Measures once.
pub(super) async fn measure(ground: &Ground, plan: &Plan) -> Result<Measurement, Failure> {
    let course = ground.course().await?;
    course.open(plan.lane, plan.ordered).await?;
    let goods = plan.goods();
    let before = course.rows(plan.lane, goods.name()).await?;
    let measured = match plan.scenario {
        Scenario::Enqueue => enqueue::run(&course, plan, &goods).await?,
        Scenario::Batch => batch::run(&course, plan, &goods).await?,
        Scenario::Drain => drain::run(&course, plan, &goods).await?,
        Scenario::Latency => latency::run(&course, plan, &goods).await?,
        Scenario::Mixed => mixed::run(&course, plan, &goods).await?,
        Scenario::Idle => idle::run(&course, plan).await?,
    };
    let after = course.rows(plan.lane, goods.name()).await?;
    let (found, sent) = ((after.open + after.ended) - (before.open + before.ended), goods.sent());
    if found != sent {
        return Err(Failure::no(format!("{sent} were sent, and the database has {found} of them")));
    }
    if plan.scenario == Scenario::Drain && after.open > 0 {
        return Err(Failure::no(format!("{} of {sent} are still open", after.open)));
    }
    if !course.is_scratch() && after.open > 0 {
        clear(&course, plan, &goods).await?;
    }
    course.close().await?;
    Ok(measured)
}

/// Carries away what is left, so that the next measurement begins as this one did.
async fn clear(course: &Course, plan: &Plan, goods: &Goods) -> Result<(), Failure> {
    let open = course.rows(plan.lane, goods.name()).await?.open;
    let fleet = Fleet::start(course, &Plan { relayers: plan.relayers.max(1), ..plan.clone() }, Notes::Nothing)?;
    fleet.record(open, |_| {}).await?;
    fleet.stop().await.map(drop)
}
