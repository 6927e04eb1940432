//! Load generators: unthrottled, or at a fixed rate.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::{task::JoinSet, time::sleep_until};

use crate::{Args, Client, Payload, Peer, Result, payload::micros};

/// How long the producers warm up before jobs count: connections, prepared statements, cached pages.
const WARM_UP: Duration = Duration::from_secs(1);
/// A call that is later than this counts from its due time. Timers have a resolution of milliseconds.
const LATE_THRESHOLD: Duration = Duration::from_millis(2);

/// Enqueues single jobs, each in its own transaction.
pub(crate) async fn enqueue<P: Peer>(args: &Args) -> Result<()> {
    let mut clients = P::clients(args).await?;
    if let Some(rate) = args.rate {
        let client = clients.first_mut().ok_or("no client")?;
        return enqueue_at_rate(client, rate, args.duration).await;
    }
    let begin = Instant::now() + WARM_UP;
    let end = begin + args.duration;
    let mut tasks = JoinSet::new();
    for mut client in clients {
        tasks.spawn(async move {
            let mut counted = 0_u64;
            loop {
                client.enqueue_one(Payload::now()).await?;
                let now = Instant::now();
                if now >= end {
                    return Result::Ok(counted);
                }
                counted += u64::from(now >= begin);
            }
        });
    }
    let mut total = 0;
    while let Some(counted) = tasks.join_next().await {
        total += counted??;
    }
    println!("{}", json!({ "per_second": total as f64 / args.duration.as_secs_f64(), "count": total }));
    Ok(())
}

/// Enqueues from one client at a fixed rate per second, and prints for each call its due time and its commit time. A
/// call that a slow one delayed counts from its due time.
async fn enqueue_at_rate(client: &mut impl Client, rate: f64, duration: Duration) -> Result<()> {
    let begin = Instant::now();
    let mut count = 0_u32;
    let mut calls = Vec::new();
    loop {
        let due = Duration::from_secs_f64(f64::from(count) / rate);
        if due >= duration {
            break;
        }
        sleep_until((begin + due).into()).await;
        let late = (begin + due).elapsed();
        let payload = Payload::due(if late > LATE_THRESHOLD { late } else { Duration::ZERO });
        let at = payload.at;
        client.enqueue_one(payload).await?;
        calls.push((at, micros()));
        count += 1;
    }
    let per_second = f64::from(count) / begin.elapsed().as_secs_f64();
    println!("{}", json!({ "per_second": per_second, "count": count, "calls": calls }));
    Ok(())
}

/// Enqueues `--count` jobs in batches, from `--clients` producers.
pub(crate) async fn batch<P: Peer>(args: &Args) -> Result<()> {
    let clients = P::clients(args).await?;
    let each = args.count.div_ceil(clients.len().max(1));
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    let mut left = args.count;
    for mut client in clients {
        let mut remaining = each.min(left);
        left -= remaining;
        let size = args.batch;
        tasks.spawn(async move {
            while remaining > 0 {
                let now = size.min(remaining);
                client.enqueue_batch((0..now).map(|_| Payload::now()).collect()).await?;
                remaining -= now;
            }
            Result::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    println!(
        "{}",
        json!({ "per_second": args.count as f64 / begin.elapsed().as_secs_f64(), "count": args.count })
    );
    Ok(())
}
