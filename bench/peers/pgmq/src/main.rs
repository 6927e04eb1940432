//! pgmq: bare reads and archives, through its SQL functions.
//!
//! pgmq has no worker: this is the loop of its README, with 500 messages per read.

use std::time::Duration;

use kit::{Args, HandlerCalls, Payload, Peer, Result};
use pgmq::PGMQueueExt;
use sqlx::{
    PgPool,
    postgres::{PgListener, PgPoolOptions},
    types::Json,
};

const QUEUE: &str = "peer";
/// Messages per read, as in the goal.
const READ_BATCH: i32 = 500;
/// The visibility timeout, in seconds.
const VISIBILITY_TIMEOUT: i32 = 60;
/// The poll interval of an empty queue, without notifications.
const POLL: Duration = Duration::from_millis(5);

struct Pgmq;

impl Peer for Pgmq {
    type Client = Sender;

    const UNFINISHED: &'static str = "select exists (select from pgmq.q_peer)";

    async fn prepare(args: &Args) -> Result<()> {
        let queue = PGMQueueExt::new_with_pool(pool(args, 2).await?).await;
        queue.install_sql_from_embedded().await?;
        queue.create(QUEUE).await?;
        Ok(())
    }

    async fn clients(args: &Args) -> Result<Vec<Sender>> {
        let pool = pool(args, u32::try_from(args.clients)?).await?;
        Ok((0..args.clients).map(|_| Sender(pool.clone())).collect())
    }

    async fn work(args: &Args, calls: HandlerCalls) -> Result<Box<dyn Send>> {
        let pool = pool(args, 2).await?;
        let listener = if args.low_latency() {
            sqlx::query("select pgmq.enable_notify_insert($1, 0)").bind(QUEUE).execute(&pool).await?;
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.listen("pgmq.q_peer.INSERT").await?;
            Some(listener)
        } else {
            None
        };
        Ok(Box::new(tokio::spawn(async move {
            if let Err(error) = read(&pool, listener, &calls).await {
                eprintln!("{error}");
                std::process::exit(1);
            }
        })))
    }
}

async fn read(pool: &PgPool, mut listener: Option<PgListener>, calls: &HandlerCalls) -> Result<()> {
    loop {
        let messages: Vec<(i64, Json<Payload>)> =
            sqlx::query_as("select msg_id, message from pgmq.read($1, $2, $3)")
                .bind(QUEUE)
                .bind(VISIBILITY_TIMEOUT)
                .bind(READ_BATCH)
                .fetch_all(pool)
                .await?;
        if messages.is_empty() {
            match &mut listener {
                Some(listener) => drop(listener.recv().await?),
                None => tokio::time::sleep(POLL).await,
            }
            continue;
        }
        for (_, payload) in &messages {
            calls.record(payload);
        }
        let ids: Vec<i64> = messages.into_iter().map(|(id, _)| id).collect();
        sqlx::query("select pgmq.archive($1, $2::bigint[])").bind(QUEUE).bind(ids).execute(pool).await?;
    }
}

struct Sender(PgPool);

impl kit::Client for Sender {
    async fn enqueue_one(&mut self, payload: Payload) -> Result<()> {
        sqlx::query("select pgmq.send($1, $2::jsonb)").bind(QUEUE).bind(Json(payload)).execute(&self.0).await?;
        Ok(())
    }

    async fn enqueue_batch(&mut self, payloads: Vec<Payload>) -> Result<()> {
        let payloads: Vec<_> = payloads.into_iter().map(Json).collect();
        sqlx::query("select pgmq.send_batch($1, $2::jsonb[])").bind(QUEUE).bind(payloads).execute(&self.0).await?;
        Ok(())
    }
}

async fn pool(args: &Args, connections: u32) -> Result<PgPool> {
    let options = PgPoolOptions::new().max_connections(connections).test_before_acquire(!args.best());
    Ok(options.connect(&args.database).await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    kit::run::<Pgmq>().await
}
