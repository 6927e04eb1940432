//! River, by its Rust client, which inserts and works jobs.

use std::{future::IntoFuture, time::Duration};

use kit::{Args, HandlerCalls, Payload, Peer, Result};
use riverqueue::{
    BoxError, Client, Job, JobArgs, QUEUE_DEFAULT, QueueConfig, WorkContext, WorkOutcome, Workers,
    migrate::PostgresMigrator,
    sqlx::{PgPool, postgres::PgPoolOptions},
};
use serde::{Deserialize, Serialize};

/// Concurrent jobs, as in River's own `riverqueue bench`.
const WORKERS: usize = 2000;
/// As in the README's first example.
const DEFAULT_WORKERS: usize = 10;
const COOLDOWN: Duration = Duration::from_millis(2);
const POLL: Duration = Duration::from_millis(20);
/// The shortest cooldown that River accepts.
const MIN_COOLDOWN: Duration = Duration::from_millis(1);

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(transparent)]
struct Work(Payload);

impl JobArgs for Work {
    const KIND: &'static str = "peer";
}

struct River;

impl Peer for River {
    type Client = Inserter;

    const UNFINISHED: &'static str =
        "select exists (select from river_job where state not in ('completed', 'cancelled', 'discarded'))";

    async fn prepare(args: &Args) -> Result<()> {
        PostgresMigrator::new(pool(args, 2).await?).migrate_up().await?;
        Ok(())
    }

    async fn clients(args: &Args) -> Result<Vec<Inserter>> {
        let pool = pool(args, u32::try_from(args.clients)?).await?;
        let mut builder = Client::builder(pool);
        if args.low_latency() {
            // By default the producer sends at most one notification per 100 ms.
            builder = builder.fetch_cooldown(MIN_COOLDOWN);
        }
        let client = builder.build()?;
        Ok((0..args.clients).map(|_| Inserter(client.clone())).collect())
    }

    async fn work(args: &Args, calls: HandlerCalls) -> Result<Box<dyn Send>> {
        let mut workers = Workers::new();
        workers.add_fn(move |_: WorkContext, job: Job<Work>| {
            calls.record(&job.args.0);
            async { Ok::<_, BoxError>(WorkOutcome::Complete) }
        })?;
        let mut builder = Client::builder(pool(args, if args.best() { 50 } else { 10 }).await?).workers(workers);
        let queue = if args.low_latency() {
            builder = builder.fetch_cooldown(MIN_COOLDOWN);
            QueueConfig::new(WORKERS).with_fetch_poll_interval(POLL)
        } else if args.best() {
            QueueConfig::new(WORKERS).with_fetch_cooldown(COOLDOWN).with_fetch_poll_interval(POLL)
        } else {
            QueueConfig::new(DEFAULT_WORKERS)
        };
        builder = builder.queue(QUEUE_DEFAULT, queue);
        let client = builder.build()?;
        let run = client.start()?;
        Ok(Box::new((client, run)))
    }
}

struct Inserter(Client);

impl kit::Client for Inserter {
    async fn enqueue_one(&mut self, payload: Payload) -> Result<()> {
        self.0.insert(Work(payload)).into_future().await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, payloads: Vec<Payload>) -> Result<()> {
        self.0.insert_many(payloads.into_iter().map(Work)).into_future().await?;
        Ok(())
    }
}

async fn pool(args: &Args, connections: u32) -> Result<PgPool> {
    let options = PgPoolOptions::new().max_connections(connections).test_before_acquire(!args.best());
    Ok(options.connect(&args.database).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    kit::run::<River>().await
}
