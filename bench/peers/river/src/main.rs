//! River, by its Rust client: inserts, and works what it has inserted.

use std::{future::IntoFuture, time::Duration};

use kit::{Args, Payload, Peer, Result, Seen};
use riverqueue::{
    BoxError, Client, Job, JobArgs, QUEUE_DEFAULT, QueueConfig, WorkContext, WorkOutcome, Workers,
    migrate::PostgresMigrator,
    sqlx::{PgPool, postgres::PgPoolOptions},
};
use serde::{Deserialize, Serialize};

/// How many run at once, as in `riverqueue bench`, which is River's own.
const WORKERS: usize = 2000;
/// As in the README's first example.
const DEFAULT_WORKERS: usize = 10;
const COOLDOWN: Duration = Duration::from_millis(2);
const POLL: Duration = Duration::from_millis(20);
/// The shortest that River takes.
const SHORTEST_COOLDOWN: Duration = Duration::from_millis(1);

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
        if args.soonest() {
            // Else notifications are held back for 100 ms after each.
            builder = builder.fetch_cooldown(SHORTEST_COOLDOWN);
        }
        let client = builder.build()?;
        Ok((0..args.clients).map(|_| Inserter(client.clone())).collect())
    }

    async fn work(args: &Args, seen: Seen) -> Result<Box<dyn Send>> {
        let mut workers = Workers::new();
        workers.add_fn(move |_: WorkContext, job: Job<Work>| {
            seen.saw(&job.args.0);
            async { Ok::<_, BoxError>(WorkOutcome::Complete) }
        })?;
        let mut builder = Client::builder(pool(args, if args.best() { 50 } else { 10 }).await?).workers(workers);
        let queue = if args.soonest() {
            builder = builder.fetch_cooldown(SHORTEST_COOLDOWN);
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
    async fn one(&mut self, payload: Payload) -> Result<()> {
        self.0.insert(Work(payload)).into_future().await?;
        Ok(())
    }

    async fn many(&mut self, payloads: Vec<Payload>) -> Result<()> {
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
