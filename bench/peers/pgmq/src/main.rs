//! pgmq: bare reads and archives, through its SQL functions.
//!
//! There is no worker in pgmq: this is the loop that its README shows, with 500 messages at a time.

use std::time::Duration;

use kit::{Args, Payload, Peer, Result, Seen};
use pgmq::PGMQueueExt;
use sqlx::{
    PgPool,
    postgres::{PgListener, PgPoolOptions},
    types::Json,
};

const QUEUE: &str = "peer";
/// How many are read at once: as the goal has it.
const READ: i32 = 500;
/// How long those who read may take, in seconds.
const VISIBLE_AGAIN: i32 = 60;
/// How often an empty queue is looked at, where nothing wakes the reader.
const PAUSE: Duration = Duration::from_millis(5);

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

    async fn work(args: &Args, seen: Seen) -> Result<Box<dyn Send>> {
        let pool = pool(args, 2).await?;
        let listener = if args.soonest() {
            sqlx::query("select pgmq.enable_notify_insert($1, 0)").bind(QUEUE).execute(&pool).await?;
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.listen("pgmq.q_peer.INSERT").await?;
            Some(listener)
        } else {
            None
        };
        Ok(Box::new(tokio::spawn(async move {
            if let Err(error) = read(&pool, listener, &seen).await {
                eprintln!("{error}");
                std::process::exit(1);
            }
        })))
    }
}

async fn read(pool: &PgPool, mut listener: Option<PgListener>, seen: &Seen) -> Result<()> {
    loop {
        let messages: Vec<(i64, Json<Payload>)> =
            sqlx::query_as("select msg_id, message from pgmq.read($1, $2, $3)")
                .bind(QUEUE)
                .bind(VISIBLE_AGAIN)
                .bind(READ)
                .fetch_all(pool)
                .await?;
        if messages.is_empty() {
            match &mut listener {
                Some(listener) => drop(listener.recv().await?),
                None => tokio::time::sleep(PAUSE).await,
            }
            continue;
        }
        for (_, payload) in &messages {
            seen.saw(payload);
        }
        let numbers: Vec<i64> = messages.into_iter().map(|(number, _)| number).collect();
        sqlx::query("select pgmq.archive($1, $2::bigint[])").bind(QUEUE).bind(numbers).execute(pool).await?;
    }
}

struct Sender(PgPool);

impl kit::Client for Sender {
    async fn one(&mut self, payload: Payload) -> Result<()> {
        sqlx::query("select pgmq.send($1, $2::jsonb)").bind(QUEUE).bind(Json(payload)).execute(&self.0).await?;
        Ok(())
    }

    async fn many(&mut self, payloads: Vec<Payload>) -> Result<()> {
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
