//! A server or another program as a process that neither outlives its owner nor surprises it.
//!
//! A thread of its own starts the process and waits for its end. On Linux the kernel can end a child with its
//! parent, and it takes the *thread* that started it for the parent: a test's own thread would be gone too soon.

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

/// How long an orphan, or what is left of a killed server, may take to go.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// A process that was started, whether or not it still runs.
#[derive(Debug)]
pub(crate) struct Process {
    pid: Pid,
    end: Arc<End>,
}

#[derive(Debug, Default)]
struct End {
    status: Mutex<Option<ExitStatus>>,
    came: Condvar,
}

/// What happens to the child processes when the process ends.
#[derive(Clone, Copy)]
enum Descendants {
    /// They end by themselves, as those of PostgreSQL do.
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
    /// Starts the command, which has to be the server itself and not a wrapper that waits for it.
    pub(crate) fn spawn(command: Command) -> io::Result<Self> {
        Self::start(command, Descendants::EndThemselves)
    }

    /// Starts the command as the head of a process group that ends with it.
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
                // The receiver is gone if the caller died; the server is stopped all the same.
                let _ = started.send(Ok(pid));
                drop(command); // with our end of its pipes
                wait_for_end(child, pid, descendants, &waiter);
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        })?;
        let pid = starting.recv().map_err(io::Error::other)??;
        Ok(Self { pid, end })
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&self) -> Option<ExitStatus> {
        *self.end.lock()
    }

    /// Sends it a signal, if it still runs.
    pub(crate) fn signal(&self, signal: Signal) {
        let ended = self.end.lock();
        if ended.is_none() {
            // The number is still ours: the waiter frees it under the same lock. A refusal cannot be helped here,
            // and the waiting task notices.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Sends a signal to it and to its group, if it still runs. Only for what was started with a group.
    pub(crate) fn signal_group(&self, signal: Signal) {
        let ended = self.end.lock();
        if ended.is_none() {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Its number. It may be another's once this one has ended.
    pub(crate) fn id(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// Blocks until it ends, and says whether it did in time.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let wait = self.end.came.wait_timeout_while(self.end.lock(), limit, |status| status.is_none());
        wait.unwrap_or_else(PoisonError::into_inner).0.is_some()
    }

    /// Waits until it ends without blocking the thread, and says whether it did in time.
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

    /// Kills it and all the processes it has started, in the middle of whatever they do.
    ///
    /// Those that would survive for a moment are killed as well: they could still write, and the next server on the
    /// same data waits for them.
    pub(crate) async fn kill_all(&self) {
        self.signal(Signal::STOP); // it must not start another while we look
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

/// Waits for the end of the child and makes it known.
fn wait_for_end(mut child: Child, pid: Pid, descendants: Descendants, end: &End) {
    // Leaves the dead child in place, so that its number cannot be another's before we hold the lock.
    let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let mut status = end.lock();
    if let Descendants::KillGroup = descendants {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    *status = Some(child.wait().unwrap_or_default());
    end.came.notify_all();
}

/// A command that the kernel ends with this signal when this process ends, where it can be had; the plain command
/// otherwise.
///
/// QUIT is what makes PostgreSQL stop at once and take its children and its shared memory with it.
pub(crate) fn tied_to_us(program: &Path, signal: &str) -> Command {
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

/// Ends the server that still runs on this data though its owner is dead, and says whether the data is free.
pub(crate) fn end_orphan(data: &Path) -> bool {
    let Some(pid) = std::fs::read_to_string(data.join("postmaster.pid")).ok().as_deref().and_then(server_pid)
    else {
        return true;
    };
    if !is_alive(pid) {
        return true;
    }
    // A server works in its data folder. A process in another folder has reused the process id and must not be killed;
    // where this cannot be told, nothing is ended.
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

/// The process that a `postmaster.pid` names. A server in single-user mode, such as initdb's, writes it negative.
fn server_pid(postmaster_pid: &str) -> Option<Pid> {
    let number: i32 = postmaster_pid.lines().next()?.trim().parse().ok()?;
    Pid::from_raw(number.checked_abs()?)
}

/// Whether a process runs. One that has died and was not yet collected by its parent does not.
fn is_alive(pid: Pid) -> bool {
    match stat(pid) {
        Some(stat) => stat.state != "Z",
        None => !cfg!(target_os = "linux") && test_kill_process(pid).is_ok(),
    }
}

/// The processes that this one has started; none where the system has no `/proc`.
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
    // The name, in brackets, may hold spaces and brackets itself: what follows the last one is plain.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some(Stat { state: fields.next()?.to_owned(), parent: fields.next()?.parse().ok()? })
}
