//! Prints the facts that a fresh install leaves in the catalogue of the server at hand, for `scripts/catalogue`.

use std::{error::Error, process::ExitCode};

use symphony_outbox::schema::catalogue;
use symphony_proof::kit::scratch::Server;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match print().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("print-catalogue: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn print() -> Result<(), Box<dyn Error>> {
    let database = Server::from_env().await?.database().await?;
    let (facts, major) = catalogue::found(&mut database.connect().await?).await?;
    for ((object, facet), value) in facts {
        println!("{major}\t{object}\t{facet}\t{value}");
    }
    database.close().await?;
    Ok(())
}
