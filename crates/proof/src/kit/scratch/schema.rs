//! What is installed into the template: the files of `schema/`, in the order of an install.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use tokio_postgres::Client;

use super::{Error, refused};

/// The order of an install. A folder stands for its files by name; what was applied already is not applied again.
const ORDER: [&str; 11] = [
    "roles.sql",
    "own.sql",
    "migrations/core",
    "migrations/payment",
    "functions/core",
    "functions/payment",
    "triggers/payment.sql",
    "views/unknown_outcome_codes.sql",
    "views",
    "grants.sql",
    "disown.sql",
];

/// One file of the schema.
#[derive(Debug, Hash)]
pub(super) struct Part {
    path: PathBuf,
    text: String,
}

/// The files in the order in which they are applied.
pub(super) fn parts() -> Result<Vec<Part>, Error> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema");
    let mut parts: Vec<Part> = Vec::new();
    for entry in ORDER {
        for path in files(&root.join(entry))? {
            if parts.iter().all(|part| part.path != path) {
                let text =
                    fs::read_to_string(&path).map_err(|source| Error::Read { path: path.clone(), source })?;
                parts.push(Part { path, text });
            }
        }
    }
    Ok(parts)
}

/// A number that changes with the schema.
pub(super) fn fingerprint(parts: &[Part]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Installs everything in one transaction, with every check that PostgreSQL has for function bodies.
pub(super) async fn install(client: &Client, parts: &[Part]) -> Result<(), Error> {
    let begin = "begin; set local check_function_bodies = on; set local plpgsql.extra_errors = 'all'";
    client.batch_execute(begin).await.map_err(refused("begin the install"))?;
    for part in parts {
        let what = || refused(format!("apply {}", part.path.display()));
        client.batch_execute(&part.text).await.map_err(what())?;
    }
    client.batch_execute("commit").await.map_err(refused("commit the install"))
}

fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if path.is_file() {
        return Ok(vec![path.to_path_buf()]);
    }
    let unreadable = |source| Error::Read { path: path.to_path_buf(), source };
    let entries = fs::read_dir(path).map_err(unreadable)?.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    Ok(files)
}
