//! What the drivers of the Rust peers have in common: the arguments, the pace, and the lines they print.
//!
//! Knows no queue. A driver says how its peer is installed, how a job goes in and how a worker runs; this decides when,
//! how many and what is reported. The protocol is in ../README.md.

mod args;
mod load;
mod payload;
mod seen;

use std::{error::Error, future::Future};

pub use args::{Aim, Args, Settings};
pub use payload::Payload;
pub use seen::Seen;

/// Any error: a driver prints it and ends.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A peer, as the runner sees it.
pub trait Peer: Send + Sync + 'static {
    /// What enqueues for one client.
    type Client: Client;

    /// A query that is true while there are jobs that are not done in the database; `:count` in it is how many were enqueued.
    const UNFINISHED: &'static str;

    /// Installs the peer into an empty database.
    fn prepare(args: &Args) -> impl Future<Output = Result<()>>;

    /// One handle for each client, each able to work at the same time as the others.
    fn clients(args: &Args) -> impl Future<Output = Result<Vec<Self::Client>>> + Send;

    /// Starts a worker whose handler does nothing but [`Seen::saw`]. Returns when it has started; what must be kept for it to
    /// go on is in the value returned.
    fn work(args: &Args, seen: Seen) -> impl Future<Output = Result<Box<dyn Send>>> + Send;
}

/// One of those who enqueue.
pub trait Client: Send + 'static {
    /// One job in its own transaction.
    fn one(&mut self, payload: Payload) -> impl Future<Output = Result<()>> + Send;

    /// Many jobs in one transaction, by the fastest way that the peer has for it.
    fn many(&mut self, payloads: Vec<Payload>) -> impl Future<Output = Result<()>> + Send;
}

/// Does what the command line asks for.
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
            let seen = Seen::default();
            let running = P::work(&args, seen.clone()).await?;
            seen.report_until_end_of_input().await?;
            drop(running);
            // What a peer would still like to put in order is not ours to wait for.
            std::process::exit(0);
        }
        verb => return Err(format!("no verb {verb}: prepare, enqueue, batch or work").into()),
    }
    Ok(())
}
