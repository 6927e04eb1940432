//! A private Prometheus server on a free loopback port, and promtool.
//!
//! The caller supplies the configuration and the alert rules.

use std::env;
use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use super::cache;
use super::process::{self, Launch, Program};

const USUAL_FOLDERS: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"];
/// How long it may take to be ready.
const DEADLINE: Duration = Duration::from_secs(120);

/// A program of the Prometheus distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Checks and tests rules.
    Promtool,
    /// The server.
    Prometheus,
}

/// Why Prometheus could not be started.
#[derive(thiserror::Error)]
pub enum Error {
    /// The program was not found.
    #[error("found no {program}: run `scripts/setup --promtool`, or set {setting} to the program")]
    NotFound {
        /// The program.
        program: &'static str,
        /// The environment variable that can name it.
        setting: &'static str,
    },
    /// It did not start. Its output says why.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A system call failed.
    #[error("could not write the files of Prometheus")]
    System(#[from] io::Error),
    /// Its output has no listening address.
    #[error("the output of Prometheus has no listening address: {0}")]
    NoAddress(String),
}

/// `unwrap` prints this, so it must say what to do next.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(error) => error.fmt(f),
            Self::System(error) => write!(f, "{self}: {error}"),
            Self::NotFound { .. } | Self::NoAddress(_) => fmt::Display::fmt(self, f),
        }
    }
}

/// The program that its environment variable names, or else the first in the cache of `scripts/setup`, the usual
/// folders and the PATH.
///
/// # Errors
/// When none of them has it.
pub fn find(tool: Tool) -> Result<PathBuf, Error> {
    let (program, setting) = match tool {
        Tool::Promtool => ("promtool", "SYMPHONY_PROMTOOL"),
        Tool::Prometheus => ("prometheus", "SYMPHONY_PROMETHEUS"),
    };
    if let Some(named) = env::var_os(setting).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let mut folders: Vec<PathBuf> = cache::folders().map(|cache| cache.join("prometheus/bin")).collect();
    folders.extend(USUAL_FOLDERS.map(PathBuf::from));
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let found = folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file());
    found.ok_or(Error::NotFound { program, setting })
}

/// A running server. Dropping it kills the server and removes its data.
#[derive(Debug)]
pub struct Prometheus {
    address: SocketAddr,
    // Declared before the folder, so that it is dropped before its data.
    _program: Program,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts a server with this configuration, which may refer to the rules as `rules.yml`, and waits until it is
    /// ready.
    ///
    /// # Errors
    /// When the program is not found, or the server does not start.
    pub async fn start(configuration: &str, rules: &str) -> Result<Self, Error> {
        let program = find(Tool::Prometheus)?;
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("prometheus.yml"), configuration)?;
        fs::write(folder.path().join("rules.yml"), rules)?;
        let arguments =
            ["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"];
        let program = Launch::new(program).args(arguments).current_dir(folder.path()).start()?;
        let line = program.wait_for_line(|line| line.contains("\"Listening on\""), DEADLINE).await?;
        let address = line.split_whitespace().find_map(|word| word.strip_prefix("address=")?.parse().ok());
        let address = address.ok_or(Error::NoAddress(line))?;
        program.wait_for_line(|line| line.contains("Server is ready to receive web requests"), DEADLINE).await?;
        Ok(Self { address, _program: program, _folder: folder })
    }

    /// The address of its HTTP API.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_nothing_says_what_to_do_next() {
        let refusal = format!("{:?}", Error::NotFound { program: "promtool", setting: "SYMPHONY_PROMTOOL" });
        assert!(
            refusal.contains("`scripts/setup --promtool`") && refusal.contains("SYMPHONY_PROMTOOL"),
            "{refusal}"
        );
    }

    #[tokio::test]
    async fn an_invalid_configuration_is_reported_with_the_output_of_prometheus() {
        let refusal = Prometheus::start("scrape_configs: 7\n", "").await.unwrap_err();
        assert!(format!("{refusal:?}").contains("cannot unmarshal"), "{refusal:?}");
    }
}
