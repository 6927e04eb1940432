//! Which programs to run. It only looks: `scripts/setup --brokers` is what installs.

use std::env;
use std::path::PathBuf;

use super::Kind;
use crate::cache;

const USUAL: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"];
/// Debian's RabbitMQ itself. What it has on the PATH is a wrapper that insists on a user of its own.
const RABBITMQ: &str = "/usr/lib/rabbitmq/bin";

/// There is no program to run.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Nothing was found anywhere. Install it.
    #[error("found no {program}: run `scripts/setup --brokers`, or set {setting} to the program")]
    Nowhere {
        /// The program.
        program: &'static str,
        /// The variable that names it.
        setting: &'static str,
    },
    /// The variable names something else than a program. Correct it.
    #[error("{setting} names {}, and there is no such file", path.display())]
    NoFile {
        /// The variable.
        setting: &'static str,
        /// What it names.
        path: PathBuf,
    },
}

/// The program of a broker: the one that its variable names, or else the first that is found in the usual folders, on the
/// PATH and in the cache of `scripts/setup`.
///
/// # Errors
/// When there is none.
pub fn find(kind: Kind) -> Result<PathBuf, FindError> {
    let (program, setting, folder) = match kind {
        Kind::Nats => ("nats-server", "SYMPHONY_NATS_SERVER", "nats"),
        Kind::Redis => ("redis-server", "SYMPHONY_REDIS_SERVER", "redis"),
        Kind::RabbitMq => ("rabbitmq-server", "SYMPHONY_RABBITMQ_SERVER", "rabbitmq"),
    };
    if let Some(named) = env::var_os(setting).filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        return if path.is_file() { Ok(path) } else { Err(FindError::NoFile { setting, path }) };
    }
    // What setup has fetched comes first: where it fetched, what the system has was too old or would not do.
    let mut folders: Vec<PathBuf> = cache::folders().map(|cache| cache.join(folder).join("bin")).collect();
    folders.extend([RABBITMQ].into_iter().chain(USUAL).map(PathBuf::from));
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let found = folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file());
    found.ok_or(FindError::Nowhere { program, setting })
}
