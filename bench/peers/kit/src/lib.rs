//! Shared code of the drivers of the Rust peers: arguments, load generators and output.
//!
//! It is independent of any queue. A driver implements the installation, the enqueue and the worker of its peer; this
//! crate generates the load and reports the results. The protocol is in ../README.md.

mod args;
mod handler_calls;
mod load;
mod payload;

use std::{error::Error, future::Future};

pub use args::{Aim, Args, Settings};
pub use handler_calls::HandlerCalls;
pub use payload::Payload;

/// Any error: a driver prints it and exits.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A job queue under test.
pub trait Peer: Send + Sync + 'static {
    /// A producer.
    type Client: Client;

    /// A query that is true while the database has unfinished jobs; `:count` in it is the number of jobs enqueued.
    const UNFINISHED: &'static str;

    /// Installs the peer into an empty database.
    fn prepare(args: &Args) -> impl Future<Output = Result<()>>;

    /// One producer for each client; they enqueue concurrently.
    fn clients(args: &Args) -> impl Future<Output = Result<Vec<Self::Client>>> + Send;

    /// Starts a worker whose handler only calls [`HandlerCalls::record`]. Returns when it has started. The worker runs
    /// until the returned value is dropped.
    fn work(args: &Args, calls: HandlerCalls) -> impl Future<Output = Result<Box<dyn Send>>> + Send;
}

/// A producer of one client.
pub trait Client: Send + 'static {
    /// Enqueues one job in its own transaction.
    fn enqueue_one(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send;

    /// Enqueues many jobs in one transaction, by the peer's fastest method.
    fn enqueue_batch(&mut self, payloads: Vec<Payload>) -> impl Future<Output = Result<()>> + Send;
}

/// Runs the command of the command line.
pub async fn run<P: Peer>() -> Result<()> {
    let args = Args::parse()?;
    match args.verb.as_str() {
        "prepare" => {
            P::prepare(&args).await?;
            println!("{}", serde_json::json!({ "unfinished": P::UNFINISHED }));
        }
        "enqueue" => load::enqueue::<P>(&args).await?,
        "batch" => load::batch::<P>(&args).await?,
        "work" => {
            let calls = HandlerCalls::default();
            let running = P::work(&args, calls.clone()).await?;
            calls.report_until_end_of_input().await?;
            drop(running);
            // Do not wait for the peer's own shutdown.
            std::process::exit(0);
        }
        verb => return Err(format!("unknown verb {verb}: expected prepare, enqueue, batch or work").into()),
    }
    Ok(())
}
