//! Finds the server programs. It installs nothing: `scripts/setup --brokers` does.

use std::env;
use std::path::PathBuf;

use super::Kind;
use crate::cache;

const USUAL_FOLDERS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"];
/// Debian's RabbitMQ. The one on the PATH is a wrapper that only runs as root or as user rabbitmq.
const RABBITMQ: &str = "/usr/lib/rabbitmq/bin";

/// Why no server program was found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// It is not installed in any known folder.
    #[error("found no {program}: run `scripts/setup --brokers`, or set {setting} to the program")]
    NotFound {
        /// The program.
        program: &'static str,
        /// The environment variable that can name it.
        setting: &'static str,
    },
    /// The environment variable names a file that does not exist.
    #[error("{setting} is set to {}, which does not exist", path.display())]
    NoFile {
        /// The environment variable.
        setting: &'static str,
        /// Its value.
        path: PathBuf,
    },
}

/// The program of a broker: the one that its environment variable names, or else the first in the cache of
/// `scripts/setup`, the usual folders and the PATH.
///
/// # Errors
/// When none of them has it.
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
    // The cache comes first: scripts/setup only fills it if the system's own program is missing or too old.
    let mut folders: Vec<PathBuf> = cache::folders().map(|cache| cache.join(folder).join("bin")).collect();
    folders.extend([RABBITMQ].into_iter().chain(USUAL_FOLDERS).map(PathBuf::from));
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let found = folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file());
    found.ok_or(FindError::NotFound { program, setting })
}
