//! `symphony demo`: a guided walk through the database side, on a private PostgreSQL that is gone afterwards.

mod cast;
mod steps;
mod walk;

use symphony_proof::kit::postgres::{Binaries, Cluster, Options};

use super::with_examples;
use crate::{
    failure::{Answer, Failure},
    interruption::Interruption,
    output,
};
use cast::Cast;
use walk::Walk;

/// Walk through what Symphony does, on a private PostgreSQL that is gone afterwards
///
/// Starts a server of its own on a free port of the loopback address, and shows step by step how payments are
/// enqueued, claimed, completed, lost and found again, and what is refused. Each step says what happened, and the
/// walk fails if anything is not as it should be. It touches no other database.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony demo\n  symphony demo --keep   # and try the other commands on what it leaves",
))]
pub(crate) struct Arguments {
    /// Leave the server running at the end, until Ctrl-C, and say how to reach it
    #[arg(long)]
    keep: bool,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<Answer, Failure> {
        let mut interruption = Interruption::listen()?;
        let (answer, cluster) = interruption.or(walk()).await??;
        if self.keep {
            output::line(&format!(
                "\nThe server runs until Ctrl-C. Try, in another terminal:\n  export DATABASE_URL={}\n  \
                 symphony status\n  symphony inspect order-2\n  symphony dlq list\n  symphony verify",
                cluster.url("postgres")
            ))?;
            // It was asked for, so it is no failure: the answer is that of the walk.
            interruption.caught().await;
        }
        Ok(answer)
    }
}

/// Walks through all of it, and hands over the server as it is then.
async fn walk() -> Result<(Answer, Cluster), Failure> {
    let binaries = Binaries::find().map_err(|error| Failure::no(error.to_string()))?;
    let options = Options { durable: true, ..Options::default() };
    let cluster = Cluster::start(&binaries, options).await;
    let cluster = cluster.map_err(|error| Failure::because("the private PostgreSQL did not start", error))?;
    let mut walk = Walk::new();
    walk.say(&format!(
        "Started a private PostgreSQL {} on port {}. It is durable: what is committed survives a crash.",
        binaries.version(),
        cluster.port()
    ))?;
    let mut cast = Cast::new(&cluster).await?;
    steps::all(&mut walk, &mut cast).await?;
    Ok((walk.end()?, cluster))
}
