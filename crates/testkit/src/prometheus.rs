//! Prometheus, and the promtool that it comes with: a private server on a free port of the loopback address, with its data
//! in a folder of its own.
//!
//! It knows how they are found and started. What is scraped, and by which rules, is the caller's business.

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

const USUAL: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"];
/// How long it may take to be ready.
const DEADLINE: Duration = Duration::from_secs(120);

/// Which of its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// What checks and tests rules.
    Promtool,
    /// The server.
    Prometheus,
}

/// Why there is no Prometheus.
#[derive(thiserror::Error)]
pub enum Error {
    /// There is no program to run. Get it.
    #[error("found no {program}: run `scripts/setup --promtool`, or set {setting} to the program")]
    Nowhere {
        /// The program.
        program: &'static str,
        /// The variable that names it.
        setting: &'static str,
    },
    /// It did not start. Its output says why.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The system refused.
    #[error("could not give Prometheus its files")]
    System(#[from] io::Error),
    /// Its output has no listening address.
    #[error("Prometheus does not say where it listens: {0}")]
    Unclear(String),
}

/// Tests unwrap, and what they print is this: it has to say what to do next.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(error) => error.fmt(f),
            Self::System(error) => write!(f, "{self}: {error}"),
            Self::Nowhere { .. } | Self::Unclear(_) => fmt::Display::fmt(self, f),
        }
    }
}

/// The program that its variable names, or else the first that is found: in the cache of `scripts/setup`, in the usual
/// folders, on the PATH.
///
/// # Errors
/// When there is none.
pub fn find(tool: Tool) -> Result<PathBuf, Error> {
    let (program, setting) = match tool {
        Tool::Promtool => ("promtool", "SYMPHONY_PROMTOOL"),
        Tool::Prometheus => ("prometheus", "SYMPHONY_PROMETHEUS"),
    };
    if let Some(named) = env::var_os(setting).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let mut folders: Vec<PathBuf> = cache::folders().map(|cache| cache.join("prometheus/bin")).collect();
    folders.extend(USUAL.map(PathBuf::from));
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let found = folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file());
    found.ok_or(Error::Nowhere { program, setting })
}

/// A server that runs. It is gone with its data when this is dropped.
#[derive(Debug)]
pub struct Prometheus {
    address: SocketAddr,
    // Before the folder, which holds its data.
    _program: Program,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts one with this configuration, beside which these rules are in `rules.yml`, and waits until it answers.
    ///
    /// # Errors
    /// When there is none to run, or it does not come up.
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
        let address = address.ok_or(Error::Unclear(line))?;
        program.wait_for_line(|line| line.contains("Server is ready to receive web requests"), DEADLINE).await?;
        Ok(Self { address, _program: program, _folder: folder })
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_nothing_says_what_to_do_next() {
        let refusal = format!("{:?}", Error::Nowhere { program: "promtool", setting: "SYMPHONY_PROMTOOL" });
        assert!(
            refusal.contains("`scripts/setup --promtool`") && refusal.contains("SYMPHONY_PROMTOOL"),
            "{refusal}"
        );
    }

    #[tokio::test]
    async fn a_configuration_that_is_none_is_told_in_its_own_words() {
        let refusal = Prometheus::start("scrape_configs: 7\n", "").await.unwrap_err();
        assert!(format!("{refusal:?}").contains("cannot unmarshal"), "{refusal:?}");
    }
}
