//! The file: lines that are appended, made durable together, and read again.
//!
//! It knows lines and nothing of what they say, but for the first, by which it knows a file of its own. Several
//! lines share one fsync: while one runs, others gather for the next.

use std::{
    fs::{File, TryLockError},
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use tokio::sync::watch;

/// The first line of every file of a bank.
const HEADER: &[u8] = b"{\"symphony_bank\":1}\n";
/// No line is longer: a body has a bound, and an entry holds less than a body.
const LONGEST_LINE: u64 = 1024 * 1024;

/// Why there is no journal, or no more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Choose a place where files can be made.
    #[error("cannot use {} as the bank's ledger", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// Stop the other bank, or choose another file.
    #[error("{} is the ledger of a bank that runs", path.display())]
    Busy { path: PathBuf },
    /// Choose another file. This one was not touched.
    #[error("{} is not the ledger of a bank", path.display())]
    Foreign { path: PathBuf },
    /// A line is not what a bank writes. This file was not touched.
    #[error("line {line} of {} is not what a bank writes: the file was changed or is damaged", path.display())]
    Damaged { path: PathBuf, line: u64 },
    /// It is not known what is on the disk. Start again: what is there counts.
    #[error("the bank's ledger cannot be written")]
    Write(#[source] io::Error),
}

/// A line's place in the order of appending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// How far the file is durable.
#[derive(Clone, Copy, Debug)]
struct Durable {
    ticket: Ticket,
    /// In bytes.
    length: u64,
    /// Nothing will become durable any more.
    ended: bool,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    last: u64,
    closed: bool,
}

#[derive(Default)]
struct Gathering {
    queue: Mutex<Queue>,
    more: Condvar,
}

impl Gathering {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing in here is left half-done by a panic.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that only grows.
pub(super) struct Journal {
    file: Arc<File>,
    gathering: Arc<Gathering>,
    durable: watch::Receiver<Durable>,
    writer: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl Journal {
    /// Opens a file, or makes one; without a path, one that vanishes with this process. Each line is shown; a line that
    /// does not please is damage. Tells how many bytes of a half-written line were cut off.
    pub(super) fn open(path: Option<&Path>, mut line: impl FnMut(&[u8]) -> bool) -> Result<(Self, u64), Error> {
        let shown = path.unwrap_or(Path::new("a temporary file")).to_owned();
        let no = |source| Error::Open { path: shown.clone(), source };
        let (file, cut) = match path {
            None => (tempfile::tempfile().map_err(no)?, 0),
            Some(path) => {
                let file = File::options().read(true).append(true).create(true).open(path).map_err(no)?;
                if !file.metadata().map_err(no)?.is_file() {
                    return Err(Error::Foreign { path: shown });
                }
                match file.try_lock() {
                    Ok(()) => {}
                    Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: shown }),
                    Err(TryLockError::Error(source)) => return Err(no(source)),
                }
                let (whole, rest) = read(&file, &shown, &mut line)?;
                if rest > 0 {
                    file.set_len(whole).map_err(no)?;
                    file.sync_all().map_err(no)?;
                }
                (file, rest)
            }
        };
        let mut length = file.metadata().map_err(no)?.len();
        if length == 0 {
            (&file).write_all(HEADER).and_then(|()| file.sync_all()).map_err(no)?;
            // The name of a new file must be durable as well.
            if let Some(folder) = path.and_then(Path::parent) {
                let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                File::open(folder).and_then(|folder| folder.sync_all()).map_err(no)?;
            }
            length = HEADER.len() as u64;
        }
        (&file).seek(io::SeekFrom::End(0)).map_err(no)?;
        let file = Arc::new(file);
        let gathering = Arc::new(Gathering::default());
        let (sender, durable) = watch::channel(Durable { ticket: Ticket(0), length, ended: false });
        let writer = {
            let (file, gathering) = (Arc::clone(&file), Arc::clone(&gathering));
            let work = move || {
                let done = write(&file, &gathering, &sender);
                sender.send_modify(|durable| durable.ended = true);
                done
            };
            std::thread::Builder::new().name("bank-journal".to_owned()).spawn(work).map_err(no)?
        };
        Ok((Self { file, gathering, durable, writer: Mutex::new(Some(writer)) }, cut))
    }

    /// Appends a line, which must hold no line end. Whoever needs an order holds a lock of their own.
    pub(super) fn append(&self, line: &[u8]) -> Ticket {
        let mut queue = self.gathering.lock();
        queue.bytes.extend_from_slice(line);
        queue.bytes.push(b'\n');
        queue.last += 1;
        let ticket = Ticket(queue.last);
        drop(queue);
        self.gathering.more.notify_one();
        ticket
    }

    /// Waits until a line is durable. False: it will never be known to be.
    pub(super) async fn durable(&self, ticket: Ticket) -> bool {
        let mut durable = self.durable.clone();
        let reached = durable.wait_for(|durable| durable.ticket >= ticket || durable.ended).await;
        reached.is_ok_and(|durable| durable.ticket >= ticket)
    }

    /// Waits until nothing can be written any more.
    pub(super) async fn ended(&self) {
        let mut durable = self.durable.clone();
        // A sender that is gone has ended as well.
        let _ = durable.wait_for(|durable| durable.ended).await;
    }

    /// Makes durable what was appended, and ends.
    pub(super) fn close(&self) -> Result<(), Error> {
        self.gathering.lock().closed = true;
        self.gathering.more.notify_one();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        match writer.map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(Error::Write(error)),
            Some(Err(_)) => Err(Error::Write(io::Error::other("the writer panicked"))),
        }
    }

    /// What is durable by now, after the first line, to be read without disturbing anybody.
    pub(super) fn reader(&self) -> impl io::BufRead + use<> {
        let end = self.durable.borrow().length;
        BufReader::with_capacity(64 * 1024, Section { file: Arc::clone(&self.file), at: HEADER.len() as u64, end })
    }
}

/// Reads a file of ours: how many bytes are whole lines, and how many follow.
fn read(file: &File, path: &Path, line: &mut impl FnMut(&[u8]) -> bool) -> Result<(u64, u64), Error> {
    let no = |source| Error::Open { path: path.to_owned(), source };
    let mut reader = BufReader::with_capacity(1024 * 1024, file);
    let (mut whole, mut number) = (0, 0);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes).map_err(no)?;
        let read = read as u64;
        number += 1;
        let ends = bytes.last() == Some(&b'\n');
        if number == 1 && bytes != HEADER {
            // A bank that was killed while it wrote its first line has left a part of it.
            return if HEADER.starts_with(&bytes) {
                Ok((0, read))
            } else {
                Err(Error::Foreign { path: path.to_owned() })
            };
        }
        if !ends && read < LONGEST_LINE {
            return Ok((whole, read));
        }
        if !ends || (number > 1 && !line(&bytes)) {
            return Err(Error::Damaged { path: path.to_owned(), line: number });
        }
        whole += read;
    }
}

/// Writes what has gathered, again and again, until there is no more to come.
fn write(mut file: &File, gathering: &Gathering, durable: &watch::Sender<Durable>) -> io::Result<()> {
    loop {
        let mut queue = gathering.lock();
        while queue.bytes.is_empty() {
            if queue.closed {
                return Ok(());
            }
            queue = gathering.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let bytes = std::mem::take(&mut queue.bytes);
        let last = Ticket(queue.last);
        drop(queue);
        file.write_all(&bytes)?;
        file.sync_data()?;
        durable.send_modify(|durable| {
            durable.ticket = last;
            durable.length += bytes.len() as u64;
        });
    }
}

/// A part of a file, read at its own place.
struct Section {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl io::Read for Section {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(into.len());
        let read = self.file.read_at(&mut into[..left], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
