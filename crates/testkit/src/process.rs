//! Child processes for tests: start, read the output, suspend, stop and kill.
//!
//! A child runs in its own process group, without a terminal and with an empty stdin, and does not outlive its owner.
//! Its output is collected in the background, so that it never blocks on a full pipe.
//!
//! # Layout
//!
//! - [`Launch`]: the program, its arguments and environment
//! - [`Program`]: the running process
//! - `child`: process handling, shared with the PostgreSQL server
//! - `output`: the collected lines

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

/// How long a killed program may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);

/// Why a program did not behave as expected, with the end of its output.
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
    /// It did not do something in time. A slow machine needs a longer timeout.
    #[error("{name} did not {what} within {timeout:?}; the end of its output:\n{output}")]
    TimedOut {
        /// The program.
        name: String,
        /// The expected event.
        what: &'static str,
        /// The timeout.
        timeout: Duration,
        /// The end of its output.
        output: String,
    },
    /// It ended before it did something, or ended in an unexpected way.
    #[error("{name} ended ({status}) and did not {what}; the end of its output:\n{output}")]
    Ended {
        /// The program.
        name: String,
        /// The expected event.
        what: &'static str,
        /// Its exit status.
        status: ExitStatus,
        /// The end of its output.
        output: String,
    },
}

/// `unwrap` prints this, so it shows the output line by line.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { source, .. } => write!(f, "{self}: {source}"),
            Self::TimedOut { .. } | Self::Ended { .. } => fmt::Display::fmt(self, f),
        }
    }
}

/// A program, its arguments and its environment. `Debug` shows the program only, because the rest may contain secrets.
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

    /// Sets an environment variable. The rest of the environment is inherited.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes an inherited environment variable.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.variables.push((name.as_ref().to_owned(), None));
        self
    }

    /// The working directory. The default is inherited.
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

    /// Starts the program.
    ///
    /// # Errors
    /// When it does not exist or cannot be executed.
    pub fn start(self) -> Result<Program, Error> {
        let name = self.program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let started = self.try_start();
        let (process, output) =
            started.map_err(|source| Error::Start { program: self.program.clone(), source })?;
        Ok(Program { name, process, output })
    }

    fn try_start(&self) -> io::Result<(Process, Arc<Output>)> {
        // `setpriv` would report a missing program later, and in its own words.
        std::fs::metadata(&self.program)?;
        let mut command = child::command_with_parent_death_signal(&self.program, "KILL");
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

/// A running program. Dropping it kills it and its process group; if a test is panicking, it prints the end of the
/// output first.
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
    /// When it does not exist or cannot be executed.
    pub fn start(
        program: impl AsRef<Path>,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<Self, Error> {
        Launch::new(program.as_ref()).args(arguments).start()
    }

    /// Its pid.
    pub fn id(&self) -> i32 {
        self.process.id()
    }

    /// Whether it runs. A suspended program counts as running.
    pub fn is_running(&self) -> bool {
        self.process.ended().is_none()
    }

    /// How many lines it has written so far: a position for [`wait_for_line_from`](Self::wait_for_line_from).
    pub fn line_count(&self) -> usize {
        self.output.count()
    }

    /// The last lines of its output.
    pub fn tail(&self) -> String {
        self.output.tail()
    }

    /// Waits for the first line of stdout or stderr that matches. Lines that were written before count too.
    ///
    /// # Errors
    /// When the timeout passes or the program ends without such a line.
    pub async fn wait_for_line(
        &self,
        wanted: impl FnMut(&str) -> bool,
        timeout: Duration,
    ) -> Result<String, Error> {
        self.wait_for_line_from(0, wanted, timeout).await
    }

    /// Like [`wait_for_line`](Self::wait_for_line), without the lines before a position.
    ///
    /// # Errors
    /// When the timeout passes or the program ends without such a line.
    pub async fn wait_for_line_from(
        &self,
        position: usize,
        wanted: impl FnMut(&str) -> bool,
        timeout: Duration,
    ) -> Result<String, Error> {
        const WHAT: &str = "write the expected line";
        match tokio::time::timeout(timeout, self.output.find(position, wanted)).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => match self.process.ends(KILL_TIMEOUT).await.then(|| self.process.ended()).flatten() {
                Some(status) => Err(self.ended(WHAT, status)),
                None => Err(self.too_late(WHAT, timeout)), // it has closed its outputs and still runs
            },
            Err(_) => Err(self.too_late(WHAT, timeout)),
        }
    }

    /// Kills it and its process group with SIGKILL, and waits until it has ended.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn kill9(&self) -> Result<(), Error> {
        self.process.signal_group(Signal::KILL);
        self.exit(KILL_TIMEOUT).await.map(drop)
    }

    /// Suspends the process with SIGSTOP, as if the scheduler gave it no CPU time.
    ///
    /// Returns when all its threads have stopped: the signal reaches one after the other, and one may still reply
    /// before.
    pub fn suspend(&self) {
        self.process.signal_group(Signal::STOP);
        let deadline = std::time::Instant::now() + KILL_TIMEOUT;
        while self.process.ended().is_none() && !has_stopped(self.id()) && std::time::Instant::now() < deadline {
            std::thread::yield_now();
        }
    }

    /// Resumes a suspended process with SIGCONT.
    pub fn resume(&self) {
        self.process.signal_group(Signal::CONT);
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        self.process.signal(Signal::HUP);
    }

    /// Sends SIGTERM.
    pub fn term(&self) {
        self.process.signal(Signal::TERM);
    }

    /// Waits until it ends, and returns its exit status. All its output is then available.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn exit(&self, timeout: Duration) -> Result<ExitStatus, Error> {
        const WHAT: &str = "end";
        if !self.process.ends(timeout).await {
            return Err(self.too_late(WHAT, timeout));
        }
        // Its process group has ended, so no process holds the pipes open: read the rest.
        let _ = tokio::time::timeout(KILL_TIMEOUT, self.output.ends()).await;
        self.process.ended().ok_or_else(|| self.too_late(WHAT, timeout))
    }

    /// Waits until it ends, and returns its exit code.
    ///
    /// # Errors
    /// When it does not end in time, or is ended by a signal.
    pub async fn exit_code(&self, timeout: Duration) -> Result<i32, Error> {
        let status = self.exit(timeout).await?;
        status.code().ok_or_else(|| self.ended("return an exit code", status))
    }

    fn too_late(&self, what: &'static str, timeout: Duration) -> Error {
        Error::TimedOut { name: self.name.clone(), what, timeout, output: self.tail() }
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
            eprintln!("the end of the output of {}:\n{}", self.name, self.tail());
        }
    }
}

/// Whether every thread of a process is stopped or has ended. Returns true on systems without `/proc`.
fn has_stopped(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses and may contain any character.
        stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['T', 't', 'Z', 'X']))
    })
}

#[cfg(test)]
mod tests;
