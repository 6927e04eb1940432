//! graphile_worker, the rewrite of Graphile Worker in Rust.

use std::time::Duration;

use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext, WorkerOptions,
    WorkerUtils,
};
use kit::{Args, HandlerCalls, Payload, Peer, Result};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, postgres::PgPoolOptions};

const SCHEMA: &str = "graphile_worker";
const TASK: &str = "peer";

// As in the crate's own benchmark of 200,000 jobs (benches/perf_test.rs).
const CONCURRENCY: usize = 500;
const CONNECTIONS: u32 = 100;
const LOCAL_QUEUE: usize = 5000;
const COMPLETE_DELAY: Duration = Duration::from_millis(5);
const POLL: Duration = Duration::from_millis(5);

/// Without local queue and batches, which would only delay single jobs.
const LOW_LATENCY_CONCURRENCY: usize = 24;

#[derive(Deserialize, Serialize)]
#[serde(transparent)]
struct Work(Payload);

impl TaskHandler for Work {
    const IDENTIFIER: &'static str = TASK;

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(calls) = context.get_ext::<HandlerCalls>() {
            calls.record(&self.0);
        }
        Ok::<(), String>(())
    }
}

struct GraphileWorker;

impl Peer for GraphileWorker {
    type Client = Adder;

    const UNFINISHED: &'static str = "select exists (select from graphile_worker._private_jobs)";

    async fn prepare(args: &Args) -> Result<()> {
        WorkerUtils::new(pool(args, 2).await?, SCHEMA).migrate().await?;
        Ok(())
    }

    async fn clients(args: &Args) -> Result<Vec<Adder>> {
        let pool = pool(args, u32::try_from(args.clients)?).await?;
        Ok((0..args.clients).map(|_| Adder(WorkerUtils::new(pool.clone(), SCHEMA))).collect())
    }

    async fn work(args: &Args, calls: HandlerCalls) -> Result<Box<dyn Send>> {
        let mut options = WorkerOptions::default().schema(SCHEMA).define_job::<Work>().add_extension(calls);
        options = if args.low_latency() {
            options.pg_pool(pool(args, CONNECTIONS).await?).concurrency(LOW_LATENCY_CONCURRENCY)
        } else if args.best() {
            options
                .pg_pool(pool(args, CONNECTIONS).await?)
                .concurrency(CONCURRENCY)
                .poll_interval(POLL)
                .complete_job_batch_delay(COMPLETE_DELAY)
                .fail_job_batch_delay(COMPLETE_DELAY)
                .local_queue(LocalQueueConfig::default().with_size(LOCAL_QUEUE))
        } else {
            options.database_url(&args.database)
        };
        let worker = options.init().await?;
        Ok(Box::new(tokio::spawn(async move {
            if let Err(error) = worker.run().await {
                eprintln!("{error}");
                std::process::exit(1);
            }
        })))
    }
}

struct Adder(WorkerUtils);

impl kit::Client for Adder {
    async fn enqueue_one(&mut self, payload: Payload) -> Result<()> {
        self.0.add_raw_job(TASK, payload, JobSpec::default()).await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, payloads: Vec<Payload>) -> Result<()> {
        let jobs = payloads
            .into_iter()
            .map(|payload| {
                Ok(RawJobSpec {
                    identifier: TASK.to_owned(),
                    payload: serde_json::to_value(payload)?,
                    spec: JobSpec::default(),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        self.0.add_raw_jobs(&jobs).await?;
        Ok(())
    }
}

async fn pool(args: &Args, connections: u32) -> Result<PgPool> {
    let options = PgPoolOptions::new().max_connections(connections).test_before_acquire(!args.best());
    Ok(options.connect(&args.database).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    kit::run::<GraphileWorker>().await
}
