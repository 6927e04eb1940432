//! Those who enqueue: as fast as they can, or at a pace.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::{task::JoinSet, time::sleep_until};

use crate::{Args, Client, Payload, Peer, Result, payload::micros};

/// How long everybody enqueues before it counts: connections are open then, statements prepared, pages in memory.
const WARM_UP: Duration = Duration::from_secs(1);
/// How much later than planned a call may be before it is counted from when it should have been: timers tick in milliseconds.
const LATE: Duration = Duration::from_millis(2);

/// Single jobs, each in a transaction of its own.
pub(crate) async fn enqueue<P: Peer>(args: &Args) -> Result<()> {
    let mut clients = P::clients(args).await?;
    if let Some(rate) = args.rate {
        let client = clients.first_mut().ok_or("no client")?;
        return paced(client, rate, args.duration).await;
    }
    let begin = Instant::now() + WARM_UP;
    let end = begin + args.duration;
    let mut tasks = JoinSet::new();
    for mut client in clients {
        tasks.spawn(async move {
            let mut counted = 0_u64;
            loop {
                client.one(Payload::now()).await?;
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

/// One client at a fixed rate per second. A call that a slow one delayed counts from when it was due. Says of each call when it was due and when it had committed.
async fn paced(client: &mut impl Client, rate: f64, duration: Duration) -> Result<()> {
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
        let payload = Payload::due(if late > LATE { late } else { Duration::ZERO });
        let at = payload.at;
        client.one(payload).await?;
        calls.push((at, micros()));
        count += 1;
    }
    let per_second = f64::from(count) / begin.elapsed().as_secs_f64();
    println!("{}", json!({ "per_second": per_second, "count": count, "calls": calls }));
    Ok(())
}

/// Batches, by as many clients as asked for, until all jobs are in.
pub(crate) async fn batch<P: Peer>(args: &Args) -> Result<()> {
    let clients = P::clients(args).await?;
    let each = args.count.div_ceil(clients.len().max(1));
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    let mut left = args.count;
    for mut client in clients {
        let mut mine = each.min(left);
        left -= mine;
        let size = args.batch;
        tasks.spawn(async move {
            while mine > 0 {
                let now = size.min(mine);
                client.many((0..now).map(|_| Payload::now()).collect()).await?;
                mine -= now;
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
