//! A program that is started, watched, stopped and killed.
//!
//! It runs in a process group of its own, without a terminal and with an empty input, and does not outlive its owner.
//! What it writes is collected in the background, so it never waits for a reader. This does not know what the program
//! is for.
//!
//! # Layout
//!
//! - [`Launch`]: what to start
//! - [`Program`]: what was started
//! - `child`: the process below it, which PostgreSQL's launcher shares
//! - `output`: the lines that it has written

pub(crate) mod child;
mod output;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;

use super::account::Account;
use child::Process;
use output::Output;

/// How long a killed program may take to be gone.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a program did not do what was expected of it. Each shows the end of its output.
#[derive(thiserror::Error)]
pub enum Error {
    /// It could not be started.
    #[error("could not start {}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// It did not do it in time. A slow machine needs a later bound.
    #[error("{name} did not {what} within {bound:?}; the end of its output:\n{output}")]
    TooLate {
        /// The program.
        name: String,
        /// What was waited for.
        what: &'static str,
        /// How long.
        bound: Duration,
        /// The end of its output.
        output: String,
    },
    /// It ended before it did, or in another way than it should.
    #[error("{name} ended ({status}) and did not {what}; the end of its output:\n{output}")]
    Ended {
        /// The program.
        name: String,
        /// What was waited for.
        what: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The end of its output.
        output: String,
    },
}

/// Tests unwrap, and what they print is this: the lines of the output below each other.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { source, .. } => write!(f, "{self}: {source}"),
            Self::TooLate { .. } | Self::Ended { .. } => fmt::Display::fmt(self, f),
        }
    }
}

/// A program, its arguments and its surroundings. What it is given is not shown: there may be secrets in it.
pub struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
    variables: Vec<(OsString, Option<OsString>)>,
    folder: Option<PathBuf>,
    account: Account,
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Launch").field(&self.program).finish()
    }
}

impl Launch {
    /// The program at this path.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            folder: None,
            account: Account::Caller,
        }
    }

    /// Further arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
        self
    }

    /// A variable of its environment, which is otherwise ours.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// A variable of ours that it does not get.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), None));
        self
    }

    /// The folder that it works in, which is otherwise ours.
    #[must_use]
    pub fn current_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// The user that it runs as.
    pub(crate) fn account(mut self, account: Account) -> Self {
        self.account = account;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// When it is not there or the system refuses.
    pub fn start(self) -> Result<Program, Error> {
        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let started = self.try_start();
        let (process, output) =
            started.map_err(|source| Error::Start { program: self.program.clone(), source })?;
        Ok(Program { name, process, output })
    }

    fn try_start(&self) -> io::Result<(Process, Arc<Output>)> {
        // What starts it in our place would put this into words of its own, and too late.
        std::fs::metadata(&self.program)?;
        let mut command = child::tied_to_us(&self.program, "KILL");
        command.args(&self.arguments);
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        self.account.apply(&mut command);
        let (stdout, stdout_end) = io::pipe()?;
        let (stderr, stderr_end) = io::pipe()?;
        command.stdin(Stdio::null()).stdout(stdout_end).stderr(stderr_end);
        let process = Process::spawn_group(command)?;
        let output = Output::new();
        for pipe in [stdout, stderr] {
            output.collect(pipe)?;
        }
        Ok((process, output))
    }
}

/// A program that was started. It is killed when this is dropped, with all it has started; while a test panics, the
/// end of its output is printed.
#[derive(Debug)]
pub struct Program {
    name: String,
    process: Process,
    output: Arc<Output>,
}

impl Program {
    /// Starts the program at this path with these arguments.
    ///
    /// # Errors
    /// When it is not there or the system refuses.
    pub fn start(
        program: impl AsRef<Path>,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self, Error> {
        Launch::new(program.as_ref()).args(arguments).start()
    }

    /// The number of its process.
    pub fn id(&self) -> i32 {
        self.process.id()
    }

    /// Whether it runs. A stopped program does.
    pub fn is_running(&self) -> bool {
        self.process.ended().is_none()
    }

    /// How many lines it has written so far: a position to [look from](Self::wait_for_line_from).
    pub fn line_count(&self) -> usize {
        self.output.count()
    }

    /// The last lines of its output.
    pub fn tail(&self) -> String {
        self.output.tail()
    }

    /// The first line that it has written, or comes to write, for which this holds; stdout and stderr alike.
    ///
    /// # Errors
    /// When the bound passes or the program ends without it.
    pub async fn wait_for_line(&self, wanted: impl FnMut(&str) -> bool, bound: Duration) -> Result<String, Error> {
        self.wait_for_line_from(0, wanted, bound).await
    }

    /// The same, without the lines before a position.
    ///
    /// # Errors
    /// When the bound passes or the program ends without it.
    pub async fn wait_for_line_from(
        &self,
        position: usize,
        wanted: impl FnMut(&str) -> bool,
        bound: Duration,
    ) -> Result<String, Error> {
        const WHAT: &str = "write the line that was waited for";
        match tokio::time::timeout(bound, self.output.find(position, wanted)).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => match self.process.ends(KILL_TIMEOUT).await.then(|| self.process.ended()).flatten() {
                Some(status) => Err(self.ended(WHAT, status)),
                None => Err(self.too_late(WHAT, bound)), // it has closed its outputs and runs on
            },
            Err(_) => Err(self.too_late(WHAT, bound)),
        }
    }

    /// Kills it and all it has started with SIGKILL, in the middle of whatever they do, and waits until it is gone.
    ///
    /// # Errors
    /// When it does not go, which only the system can cause.
    pub async fn kill9(&self) -> Result<(), Error> {
        self.process.signal_group(Signal::KILL);
        self.exit(KILL_TIMEOUT).await.map(drop)
    }

    /// Stops it with SIGSTOP: it stays as it is and does nothing, like one that the system gives no time.
    ///
    /// Returns once all of its threads have stopped: the signal reaches them one after the other, and until then one may still answer.
    pub fn stop(&self) {
        self.process.signal_group(Signal::STOP);
        let deadline = std::time::Instant::now() + KILL_TIMEOUT;
        while self.process.ended().is_none() && !has_stopped(self.id()) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
    }

    /// Lets it go on after a stop.
    pub fn cont(&self) {
        self.process.signal_group(Signal::CONT);
    }

    /// Asks it to end, with SIGTERM.
    pub fn term(&self) {
        self.process.signal(Signal::TERM);
    }

    /// Waits until it ends, and says how. All that it has written can then be read.
    ///
    /// # Errors
    /// When it does not end within the bound.
    pub async fn exit(&self, bound: Duration) -> Result<ExitStatus, Error> {
        const WHAT: &str = "end";
        if !self.process.ends(bound).await {
            return Err(self.too_late(WHAT, bound));
        }
        // Its process group is gone, so no process holds the pipes: read the rest.
        let _ = tokio::time::timeout(KILL_TIMEOUT, self.output.ends()).await;
        self.process.ended().ok_or_else(|| self.too_late(WHAT, bound))
    }

    /// Waits until it ends, and returns its exit code.
    ///
    /// # Errors
    /// When it does not end within the bound, or by a signal.
    pub async fn exit_code(&self, bound: Duration) -> Result<i32, Error> {
        let status = self.exit(bound).await?;
        status.code().ok_or_else(|| self.ended("return an exit code", status))
    }

    fn too_late(&self, what: &'static str, bound: Duration) -> Error {
        Error::TooLate { name: self.name.clone(), what, bound, output: self.tail() }
    }

    fn ended(&self, what: &'static str, status: ExitStatus) -> Error {
        Error::Ended { name: self.name.clone(), what, status, output: self.tail() }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.process.signal_group(Signal::KILL);
        self.process.wait(KILL_TIMEOUT);
        if std::thread::panicking() {
            eprintln!("the end of what {} has written:\n{}", self.name, self.tail());
        }
    }
}

/// Whether every thread of a process is stopped or has ended. Where the system does not tell, it is taken to be so.
fn has_stopped(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses and may hold anything.
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['T', 't', 'Z', 'X']))
    })
}

#[cfg(test)]
mod tests;
