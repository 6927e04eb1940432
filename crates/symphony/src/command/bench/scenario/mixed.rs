//! Enqueues and relayers at once, as in a day's work: how fast each is, who falls behind, and how long claims take as time goes by.

use std::time::Duration;

use tokio::time::{Instant, interval_at};

use super::super::clock;
use super::super::result::{Stretch, rate};
use super::super::scale::Times;
use super::senders::Senders;
use super::{Course, Failure, Fleet, Goods, Measurement, Notes, Plan};

/// Into so many stretches the time is cut.
const STRETCHES: u32 = 10;

pub(super) async fn run(course: &Course, plan: &Plan, goods: &Goods) -> Result<Measurement, Failure> {
    let fleet = Fleet::start(course, plan, Notes::Claims)?;
    fleet.listen().await?;
    let senders = Senders::open(course, plan, goods).await?;
    let snapshot = if plan.hold_snapshot { Some(course.hold_snapshot().await?) } else { None };
    let watch = course.watch().await?;
    let before = fleet.recorded()?;
    let stretch = plan.length / STRETCHES;
    let began = clock::now();
    let behind = || Ok::<_, Failure>(goods.sent().saturating_sub(fleet.recorded()?));
    let mut backlogs = Vec::new();
    let sent = {
        let mut ends = interval_at(Instant::now() + stretch, stretch);
        let sending = senders.send(plan, goods);
        tokio::pin!(sending);
        loop {
            tokio::select! {
                sent = &mut sending => break sent?,
                _ = ends.tick() => backlogs.push(behind()?),
            }
        }
    };
    let (recorded, backlog) = (fleet.recorded()?, behind()?);
    drop(snapshot);
    let work = fleet.stop().await?;
    let share = watch.share(sent.count).await?;
    let measured = Measurement::new(plan, recorded - before, sent.length, share);
    Ok(Measurement {
        enqueued: Some(sent.count),
        enqueued_per_second: Some(rate(sent.count, sent.length)),
        backlog: Some(backlog),
        stretches: if plan.count.is_none() {
            stretches(&work.claims, began, stretch, &backlogs)?
        } else {
            Vec::new()
        },
        ..measured.with_times("call", &sent.times).with_relayers(&work)
    })
}

/// How long claims took in each stretch of so much time, and how many waited at its end.
fn stretches(
    claims: &[(u64, Duration)],
    began: u64,
    stretch: Duration,
    backlogs: &[u64],
) -> Result<Vec<Stretch>, Failure> {
    let mut times = vec![Times::new()?; STRETCHES as usize];
    for (answered, took) in claims {
        let after = Duration::from_nanos(answered.saturating_sub(began));
        let place = after.as_nanos() / stretch.as_nanos().max(1);
        if let Some(times) = usize::try_from(place).ok().and_then(|place| times.get_mut(place)) {
            times.note(*took);
        }
    }
    let ends = (1..).map(|number| (stretch * number).as_secs_f64());
    let all = times.iter().zip(ends).enumerate();
    let stretches = all.filter_map(|(place, (times, until_seconds))| {
        let of = times.percentiles()?;
        Some(Stretch {
            until_seconds,
            claims: times.count(),
            claim_p50_ms: of.p50_ms,
            claim_p99_ms: of.p99_ms,
            backlog: backlogs.get(place).copied(),
        })
    });
    Ok(stretches.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_counted_in_the_stretch_in_which_they_were_answered() {
        let second = 1_000_000_000;
        let claims: Vec<_> = (0..30).map(|n| (n * second / 3, Duration::from_millis(1 + n))).collect();
        let found = stretches(&claims, 0, Duration::from_secs(1), &[7, 8]).unwrap();
        assert_eq!(found.len(), 10);
        assert!(found.iter().all(|stretch| stretch.claims == 3));
        assert_eq!(found[0].backlog, Some(7));
        assert_eq!(found[2].backlog, None);
        assert!((found[9].claim_p99_ms - 30.0).abs() < 0.1 && (found[9].until_seconds - 10.0).abs() < 1e-9);
        // One that came before or after belongs to nobody.
        assert!(stretches(&[(11 * second, Duration::ZERO)], 0, Duration::from_secs(1), &[]).unwrap().is_empty());
    }
}
