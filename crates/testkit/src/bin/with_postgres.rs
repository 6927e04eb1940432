//! Starts a private PostgreSQL, runs a command, and stops the server: one server for a whole test run.
//!
//! Exits with the code of the command, or with 128 plus the signal that ended it. Failures before that are 125 (the
//! server), 126 (the command cannot be executed) and 127 (the command does not exist).

use std::error::Error;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};

use clap::Parser;
use rustix::process::{Pid, kill_process};
use symphony_testkit::postgres::{Binaries, Cluster, Options};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};

const OWN_FAILURE: u8 = 125;

/// Runs a command with a private PostgreSQL server, whose URL is in SYMPHONY_TEST_SERVER.
#[derive(Parser)]
#[command(name = "with-postgres", version)]
struct Arguments {
    /// The folder that holds initdb and postgres; searched for if not given
    #[arg(long, value_name = "DIR")]
    bindir: Option<PathBuf>,
    /// Keep committed data across a crash, as in production (fsync on)
    #[arg(long)]
    durable: bool,
    /// The command, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("with-postgres: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                eprintln!("  because: {cause}");
                source = cause.source();
            }
            ExitCode::from(OWN_FAILURE)
        }
    }
}

async fn run(arguments: Arguments) -> Result<u8, Box<dyn Error>> {
    // From here on a signal does not end this process: it must stop the server first.
    let mut signals = Signals::catch()?;
    let binaries = arguments.bindir.map_or_else(Binaries::find, Binaries::at)?;
    let options = Options { durable: arguments.durable, ..Options::default() };
    let cluster = tokio::select! {
        started = Cluster::start(&binaries, options) => started?,
        caught = signals.next() => return Ok(ended_by(caught.as_raw_value())),
    };
    eprintln!("with-postgres: PostgreSQL {} on port {}", binaries.version(), cluster.port());

    let mut words = arguments.command.into_iter();
    let program = words.next().unwrap_or_default();
    let spawned = Command::new(&program).args(words).env("SYMPHONY_TEST_SERVER", cluster.url("postgres")).spawn();
    let code = match spawned {
        Ok(child) => code_of(wait(child, &mut signals).await?),
        Err(error) => {
            eprintln!("with-postgres: cannot run {}: {error}", program.display());
            if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
        }
    };
    cluster.remove()?;
    Ok(code)
}

/// Waits for the command, and forwards signals to it.
async fn wait(mut child: Child, signals: &mut Signals) -> std::io::Result<ExitStatus> {
    loop {
        tokio::select! {
            status = child.wait() => return status,
            caught = signals.next() => {
                // The terminal sends Ctrl-C to the command as well, and many programs stop at once on a second one.
                if caught == SignalKind::interrupt() {
                    continue;
                }
                let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
                let number = rustix::process::Signal::from_named_raw(caught.as_raw_value());
                if let (Some(pid), Some(number)) = (pid, number) {
                    let _ = kill_process(pid, number);
                }
            }
        }
    }
}

fn code_of(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(OWN_FAILURE),
        (None, Some(signal)) => ended_by(signal),
        (None, None) => OWN_FAILURE,
    }
}

fn ended_by(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(OWN_FAILURE)
}

/// The signals that request a process to end.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        }
    }
}
