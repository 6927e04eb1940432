//! Sessions that send at the same time, each one after the other, until their time or their number is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::time::MissedTickBehavior;

use super::super::goods::{Goods, Sender};
use super::super::ground::Course;
use super::super::plan::Plan;
use super::super::scale::Times;
use crate::failure::Failure;

/// Sessions that are ready to send.
pub(super) struct Senders(Vec<Sender>);

/// What they did.
pub(super) struct Sent {
    pub(super) count: u64,
    pub(super) length: Duration,
    /// How long each call took.
    pub(super) times: Times,
}

impl Senders {
    /// Opens as many as planned, and lets each send once: the first call of a session is that in which the server reads the functions.
    pub(super) async fn open(course: &Course, plan: &Plan, goods: &Goods) -> Result<Self, Failure> {
        let open = async || {
            let sender = goods.sender(course.target().connect().await?).await?;
            goods.send(&sender).await?;
            Ok::<_, Failure>(sender)
        };
        let mut senders = Vec::new();
        for _ in 0..plan.clients {
            senders.push(open().await?);
        }
        Ok(Self(senders))
    }

    /// Lets all of them send, and ends their sessions.
    pub(super) async fn send(self, plan: &Plan, goods: &Goods) -> Result<Sent, Failure> {
        let began = Instant::now();
        let end = plan.count.is_none().then(|| began + plan.length);
        let left = AtomicU64::new(plan.count.unwrap_or(u64::MAX));
        let clients = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let pace = plan.rate.map(|rate| Duration::from_secs(1) * clients / rate.max(1));
        let work = self.0.iter().map(|sender| one(sender, goods, end, &left, pace));
        let all = try_join_all(work).await?;
        let length = began.elapsed();
        let mut times = Times::new()?;
        for one in &all {
            times.join(one)?;
        }
        Ok(Sent { count: times.count(), length, times })
    }
}

async fn one(
    sender: &Sender,
    goods: &Goods,
    end: Option<Instant>,
    left: &AtomicU64,
    pace: Option<Duration>,
) -> Result<Times, Failure> {
    let mut times = Times::new()?;
    let mut turns = pace.map(tokio::time::interval);
    if let Some(turns) = &mut turns {
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    loop {
        if let Some(turns) = &mut turns {
            turns.tick().await;
        }
        let is_over = end.is_some_and(|end| Instant::now() >= end);
        let take = |left: u64| left.checked_sub(1);
        if is_over || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Ok(times);
        }
        let called = Instant::now();
        goods.send(sender).await?;
        times.note(called.elapsed());
    }
}
