//! awa, on its queue storage.

use std::time::Duration;

use awa::{
    Client, InsertOpts, InsertParams, JobArgs, JobResult, QueueConfig, QueueStorage, QueueStorageConfig,
    insert_with, migrations, model::insert, worker::TransitionWorkerRole,
};
use kit::{Args, HandlerCalls, Payload, Peer, Result};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, postgres::PgPoolOptions};

const QUEUE: &str = "peer";

// As in awa's own comparison of job queues (hardbyte/postgresql-job-queue-benchmarking, awa-bench).
const WORKERS: u32 = 256;
const CONNECTIONS: u32 = 80;
const POLL: Duration = Duration::from_millis(50);
const SNAPSHOTS: Duration = Duration::from_secs(300);
const QUEUE_ROTATES: Duration = Duration::from_secs(1);
const LEASES_ROTATE: Duration = Duration::from_millis(50);

/// Shards trade strict order for concurrent producers; 8 was fastest in awa's own measurements (its ADR 25).
const SHARDS: usize = 8;
const SHARDED: &str = "insert into awa.queue_meta (queue, enqueue_shards) values ('peer', 8)";

/// The payload as awa job arguments.
#[derive(Deserialize, JobArgs, Serialize)]
struct Work {
    at: i64,
    pad: String,
}

impl From<Payload> for Work {
    fn from(Payload { at, pad }: Payload) -> Self {
        Self { at, pad }
    }
}

struct Awa;

impl Peer for Awa {
    type Client = Inserter;

    // The view awa.jobs takes seconds. These are the counters that awa itself uses for the number of ended jobs.
    const UNFINISHED: &'static str = "
        select coalesce((select sum(live_terminal_count) from awa.queue_terminal_live_counts), 0)
             + coalesce((select sum(terminal_delta) from awa.queue_terminal_count_deltas), 0)
             + coalesce((select sum(completed_count) from awa.receipt_completion_batches), 0)
             + coalesce((select sum(pruned_completed_count) from awa.queue_terminal_rollups), 0)
             < :count + 8";

    async fn prepare(args: &Args) -> Result<()> {
        let pool = pool(args, 2).await?;
        migrations::run(&pool).await?;
        let storage = storage()?;
        storage.install(&pool).await?;
        if args.best() {
            sqlx::query(SHARDED).execute(&pool).await?;
        }
        // The first job of a shard creates its sequences, which fails if two producers do so at once. So enqueue one
        // job per shard in turn. UNFINISHED adds these 8 jobs.
        for _ in 0..SHARDS {
            let first = insert::params_with(&Work::from(Payload::now()), options())?;
            storage.enqueue_params_batch(&pool, &[first]).await?;
        }
        Ok(())
    }

    async fn clients(args: &Args) -> Result<Vec<Inserter>> {
        let pool = pool(args, u32::try_from(args.clients)?).await?;
        (0..args.clients)
            .map(|_| Ok(Inserter { pool: pool.clone(), storage: storage()?, best: args.best() }))
            .collect()
    }

    async fn work(args: &Args, calls: HandlerCalls) -> Result<Box<dyn Send>> {
        let pool = pool(args, if args.best() { CONNECTIONS } else { 10 }).await?;
        let queue = if args.best() {
            QueueConfig { max_workers: WORKERS, poll_interval: POLL, ..QueueConfig::default() }
        } else {
            QueueConfig::default()
        };
        let mut builder = Client::builder(pool)
            .queue(QUEUE, queue)
            .queue_storage(QueueStorageConfig::default(), QUEUE_ROTATES, LEASES_ROTATE)
            .transition_role(TransitionWorkerRole::QueueStorageTarget)
            .register::<Work, _, _>(move |Work { at, pad }, _| {
                calls.record(&Payload { at, pad });
                async { Ok(JobResult::Completed) }
            });
        if args.best() {
            builder = builder.queue_stats_interval(SNAPSHOTS).runtime_snapshot_interval(SNAPSHOTS);
        }
        let client = builder.build()?;
        client.start().await?;
        Ok(Box::new(client))
    }
}

struct Inserter {
    pool: PgPool,
    storage: QueueStorage,
    best: bool,
}

impl kit::Client for Inserter {
    async fn enqueue_one(&mut self, payload: Payload) -> Result<()> {
        insert_with(&self.pool, &Work::from(payload), options()).await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, payloads: Vec<Payload>) -> Result<()> {
        let jobs = payloads
            .into_iter()
            .map(|payload| Ok(insert::params_with(&Work::from(payload), options())?))
            .collect::<Result<Vec<InsertParams>>>()?;
        if self.best {
            self.storage.enqueue_params_copy(&self.pool, &jobs).await?;
        } else {
            awa::insert_many(&self.pool, &jobs).await?;
        }
        Ok(())
    }
}

fn options() -> InsertOpts {
    InsertOpts { queue: QUEUE.to_owned(), ..InsertOpts::default() }
}

fn storage() -> Result<QueueStorage> {
    Ok(QueueStorage::new(QueueStorageConfig::default())?)
}

async fn pool(args: &Args, connections: u32) -> Result<PgPool> {
    let options = PgPoolOptions::new().max_connections(connections).test_before_acquire(!args.best());
    Ok(options.connect(&args.database).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    kit::run::<Awa>().await
}
