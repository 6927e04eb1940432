//! Prints the facts that a fresh install leaves in the catalogue of the server at hand, for `scripts/catalogue`: what
//! every lane needs, and what each adds to it.

use std::{error::Error, process::ExitCode};

use symphony_outbox::schema::{
    Lane,
    catalogue::{self, Facts},
    script,
};
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
    let server = Server::from_env().await?;
    let (core, major) = installed(&server, &[]).await?;
    let mut sum = core.clone();
    print_lines("core", major, &core);
    for lane in Lane::ALL {
        let (facts, _) = installed(&server, &[lane]).await?;
        let adds: Facts = facts.into_iter().filter(|(fact, value)| core.get(fact) != Some(value)).collect();
        print_lines(lane.name(), major, &adds);
        sum.extend(adds);
    }
    let (together, _) = installed(&server, &Lane::ALL).await?;
    if sum == together { Ok(()) } else { Err("the lanes together are not the sum of each alone".into()) }
}

/// What an install of these lanes leaves, and the server's major version.
async fn installed(server: &Server, lanes: &[Lane]) -> Result<(Facts, u32), Box<dyn Error>> {
    let database = server.empty_database().await?;
    let mut client = database.connect().await?;
    client.batch_execute(&script(lanes)).await?;
    let found = catalogue::found(&mut client).await?;
    drop(client);
    database.close().await?;
    Ok(found)
}

fn print_lines(name: &str, major: u32, facts: &Facts) {
    for ((object, facet), value) in facts {
        println!("{name}\t{major}\t{object}\t{facet}\t{value}");
    }
}
