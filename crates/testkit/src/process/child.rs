//! A child process that does not outlive its owner.
//!
//! A dedicated thread starts the process and waits for its end. On Linux the kernel can signal a child when its parent
//! ends, but the "parent" is the *thread* that started it: the thread of a test may end too early.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, test_kill_process, waitid,
};

/// How long an orphan, or the children of a killed server, may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A started process, which may have ended.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    end: Arc<End>,
}

#[derive(Debug, Default)]
struct End {
    status: Mutex<Option<ExitStatus>>,
    ended: Condvar,
}

/// What happens to the child processes when the process ends.
#[derive(Clone, Copy)]
enum Descendants {
    /// They end by themselves, as PostgreSQL's do.
    EndThemselves,
    /// They are in its process group and are killed.
    KillGroup,
}

impl End {
    fn lock(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Process {
    /// Starts the command, which must be the server itself and not a wrapper that waits for it.
    pub(crate) fn spawn(command: Command) -> io::Result<Self> {
        Self::start(command, Descendants::EndThemselves)
    }

    /// Starts the command as the leader of a process group, which is killed when it ends.
    pub(crate) fn spawn_group(mut command: Command) -> io::Result<Self> {
        command.process_group(0);
        Self::start(command, Descendants::KillGroup)
    }

    fn start(mut command: Command, descendants: Descendants) -> io::Result<Self> {
        let end = Arc::new(End::default());
        let (started, starting) = mpsc::channel();
        let waiter = Arc::clone(&end);
        thread::Builder::new().name("waiter".into()).spawn(move || match command.spawn() {
            Ok(child) => {
                let pid = Pid::from_child(&child);
                // The send fails if the caller has ended; the child is stopped anyway.
                let _ = started.send(Ok(pid));
                drop(command); // closes our ends of its pipes
                wait_for_end(child, pid, descendants, &waiter);
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        })?;
        let pid = starting.recv().map_err(io::Error::other)??;
        Ok(Self { pid, end })
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        *self.end.lock()
    }

    /// Sends it a signal, if it still runs.
    pub(crate) fn signal(&self, signal: Signal) {
        let ended = self.end.lock();
        if ended.is_none() {
            // The pid is still valid: the waiter reaps the child under the same lock. An error is ignored, because
            // the task that waits for the end reports a timeout.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Sends a signal to its process group, if it still runs. Only for a process of [`Self::spawn_group`].
    pub(crate) fn signal_group(&self, signal: Signal) {
        let ended = self.end.lock();
        if ended.is_none() {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Its pid, which the system may reuse after it has ended.
    pub(crate) fn id(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// Blocks until it ends. Returns false on a timeout.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let wait = self.end.ended.wait_timeout_while(self.end.lock(), limit, |status| status.is_none());
        wait.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// Waits until it ends, without blocking the thread. Returns false on a timeout.
    pub(crate) async fn ends(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.ended().is_none() {
            if Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        true
    }

    /// Kills it and its children with SIGKILL.
    ///
    /// Children that outlive it could still write, and the next server on the same data would wait for them.
    pub(crate) async fn kill_all(&self) {
        self.signal(Signal::STOP); // so that it starts no other child in the meantime
        let children = children_of(self.pid);
        self.signal(Signal::KILL);
        for child in &children {
            let _ = kill_process(*child, Signal::KILL);
        }
        self.ends(KILL_TIMEOUT).await;
        let deadline = Instant::now() + KILL_TIMEOUT;
        while children.iter().any(|child| is_alive(*child)) && Instant::now() < deadline {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Waits for the end of the child and publishes its exit status.
fn wait_for_end(mut child: Child, pid: Pid, descendants: Descendants, end: &End) {
    // Does not reap the child, so that its pid is not reused before we hold the lock.
    let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let mut status = end.lock();
    if let Descendants::KillGroup = descendants {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    *status = Some(child.wait().unwrap_or_default());
    end.ended.notify_all();
}

/// A command to which the kernel sends this signal when this process ends, by `setpriv --pdeathsig`. Without `setpriv`
/// it is the plain command.
///
/// PostgreSQL shuts down immediately on QUIT, and ends its children and removes its shared memory.
pub(crate) fn command_with_parent_death_signal(program: &Path, signal: &str) -> Command {
    static SETPRIV: OnceLock<bool> = OnceLock::new();
    let works = || Command::new("setpriv").args(["--pdeathsig", "QUIT", "true"]).output();
    if *SETPRIV.get_or_init(|| works().is_ok_and(|output| output.status.success())) {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", signal]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

/// Ends a server that still runs on this data after its owner has died. Returns whether no server uses the data.
pub(crate) fn end_orphan(data: &Path) -> bool {
    let Some(pid) = std::fs::read_to_string(data.join("postmaster.pid")).ok().as_deref().and_then(server_pid)
    else {
        return true;
    };
    if !is_alive(pid) {
        return true;
    }
    // The working directory of a server is its data directory. A process with another one has reused the pid and must
    // not be killed. If the working directory cannot be read, kill nothing.
    let works_in = std::fs::read_link(format!("/proc/{pid}/cwd"));
    match works_in {
        Ok(folder) if folder == data => {}
        Ok(_) => return true,
        Err(_) => return false,
    }
    let _ = kill_process(pid, Signal::QUIT);
    let deadline = Instant::now() + KILL_TIMEOUT;
    while is_alive(pid) && Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
    }
    !is_alive(pid)
}

/// Sends a signal to the server that runs on this data, which another program started, and to all its processes.
pub(crate) fn signal_server(data: &Path, signal: Signal) {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).ok();
    let Some(server) = text.as_deref().and_then(server_pid) else { return };
    // The working directory of a server is its data directory: another process may have got the pid.
    if std::fs::read_link(format!("/proc/{server}/cwd")).ok().as_deref() != Some(data) {
        return;
    }
    if signal != Signal::CONT {
        let _ = kill_process(server, Signal::STOP); // so that it starts no other process in the meantime
    }
    for process in children_of(server).into_iter().chain([server]) {
        let _ = kill_process(process, signal);
    }
}

/// The pid in a `postmaster.pid`. A server in single-user mode, such as initdb's, writes it as a negative number.
fn server_pid(postmaster_pid: &str) -> Option<Pid> {
    let number: i32 = postmaster_pid.lines().next()?.trim().parse().ok()?;
    Pid::from_raw(number.checked_abs()?)
}

/// Whether a process runs. A zombie does not.
fn is_alive(pid: Pid) -> bool {
    match stat(pid) {
        Some(stat) => stat.state != "Z",
        None => !cfg!(target_os = "linux") && test_kill_process(pid).is_ok(),
    }
}

/// The children of a process; empty on systems without `/proc`.
fn children_of(parent: Pid) -> Vec<Pid> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == parent.as_raw_pid()))
        .collect()
}

struct Stat {
    state: String,
    parent: i32,
}

fn stat(pid: Pid) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain spaces and parentheses: parse what follows the last one.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some(Stat { state: fields.next()?.to_owned(), parent: fields.next()?.parse().ok()? })
}
