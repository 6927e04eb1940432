//! Prints the catalogue facts of a fresh install, for `scripts/catalogue`: those of the core, and those that each lane
//! adds.
//!
//! PostgreSQL prints some expressions differently after a dump and a restore, so it prints those variants too. It adds
//! a dump of this server to the folder, then restores and reads every dump there. Run it on the same folder from the
//! oldest version to the newest.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use symphony_db::schema::{
    Lane,
    catalogue::{self, Facts, Key},
    script,
};
use symphony_testkit::{
    postgres::Binaries,
    test_database::{Database, Server},
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [bindir, dumps] = arguments.as_slice() else {
        eprintln!("usage: print-catalogue BINDIR DUMPS");
        return ExitCode::from(2);
    };
    match print(Path::new(bindir), Path::new(dumps)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("print-catalogue: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn print(bindir: &Path, dumps: &Path) -> Result<(), Box<dyn Error>> {
    let binaries = Binaries::at(bindir)?;
    let server = Server::from_env().await?;
    let (core, major) = installed(&server, &[]).await?;
    let mut groups = vec![("core", values(core.clone()))];
    for lane in Lane::ALL {
        let (facts, _) = installed(&server, &[lane]).await?;
        let adds = facts.into_iter().filter(|(key, fact)| core.get(key) != Some(fact)).collect();
        groups.push((lane.name(), values(adds)));
    }
    let database = database_with(&server, &Lane::ALL).await?;
    let (all_lanes, _) = found(&database).await?;
    if groups.iter().flat_map(|(_, facts)| facts.clone()).collect::<BTreeMap<_, _>>() != values(all_lanes) {
        return Err("an install of all lanes differs from the sum of installs of each lane".into());
    }
    for (name, facts) in &groups {
        print_lines(name, major, facts);
    }

    let dump = Command::new(binaries.program("pg_dump"))
        .args(["--format=custom", "--file"])
        .arg(dumps.join(major.to_string()))
        .arg(database.url())
        .status()?;
    if !dump.success() {
        return Err("pg_dump failed".into());
    }
    database.close().await?;
    let mut dumps: Vec<PathBuf> =
        fs::read_dir(dumps)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    dumps.sort();
    for dump in dumps {
        let restored = values(restored(&server, &binaries, &dump).await?);
        if restored.len() != groups.iter().map(|(_, facts)| facts.len()).sum::<usize>() {
            return Err(format!("{}: the restored database has more or fewer facts", dump.display()).into());
        }
        for (name, facts) in &groups {
            let others: BTreeMap<_, _> = facts
                .iter()
                .filter_map(|(key, value)| {
                    Some((key.clone(), restored.get(key).filter(|other| *other != value)?.clone()))
                })
                .collect();
            print_lines(name, major, &others);
        }
    }
    Ok(())
}

async fn database_with(server: &Server, lanes: &[Lane]) -> Result<Database, Box<dyn Error>> {
    let database = server.empty_database().await?;
    database.connect().await?.batch_execute(&script(lanes)).await?;
    Ok(database)
}

async fn found(database: &Database) -> Result<(Facts, u32), Box<dyn Error>> {
    let mut client = database.connect().await?;
    let (facts, major) = catalogue::found(&mut client).await?;
    Ok((catalogue::with_any_partition(facts), major))
}

/// The catalogue facts of an install of these lanes, and the server's major version.
async fn installed(server: &Server, lanes: &[Lane]) -> Result<(Facts, u32), Box<dyn Error>> {
    let database = database_with(server, lanes).await?;
    let facts = found(&database).await?;
    database.close().await?;
    Ok(facts)
}

/// The catalogue facts of a restored dump. Its roles exist, because the installs before it created them.
async fn restored(server: &Server, binaries: &Binaries, dump: &Path) -> Result<Facts, Box<dyn Error>> {
    let database = server.empty_database().await?;
    let restore = Command::new(binaries.program("pg_restore"))
        .args(["--exit-on-error", "--dbname"])
        .arg(database.url())
        .arg(dump)
        .status()?;
    if !restore.success() {
        return Err(format!("pg_restore of {} failed", dump.display()).into());
    }
    let (facts, _) = found(&database).await?;
    database.close().await?;
    Ok(facts)
}

fn values(facts: Facts) -> BTreeMap<Key, String> {
    facts.into_iter().map(|(key, fact)| (key, fact.value)).collect()
}

fn print_lines(name: &str, major: u32, facts: &BTreeMap<Key, String>) {
    for ((object, facet), value) in facts {
        println!("{name}\t{major}\t{object}\t{facet}\t{value}");
    }
}
