//! The append-only ledger file: appends lines, makes them durable in batches, and reads them again.
//!
//! It does not interpret lines, except for the header. Several lines share one fsync: lines that arrive during an fsync
//! wait for the next one.

use std::{
    fs::{File, TryLockError},
    io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use tokio::sync::watch;

/// The first line of every ledger file.
const HEADER: &[u8] = b"{\"symphony_bank\":1}\n";
/// The longest line: an entry is shorter than the largest body.
const MAX_LINE_BYTES: u64 = 1024 * 1024;

/// Why the ledger file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Choose a folder in which the bank may create files.
    #[error("cannot open {} as the ledger of the bank", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Stop the other bank, or choose another file.
    #[error("{} is in use by a running bank", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// Choose another file. This one was not touched.
    #[error("{} is not the ledger of a bank", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A line is not a ledger entry. The file was not changed.
    #[error("line {line} of {} is not a ledger entry: the file was changed or is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
    },
    /// It is unknown what is on the disk. Start the bank again: it continues with what the file holds.
    #[error("the bank's ledger cannot be written")]
    Write(#[source] io::Error),
}

/// The position of a line in the order of appending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineNumber(u64);

/// The durable part of the file.
#[derive(Clone, Copy, Debug)]
struct Durable {
    line: LineNumber,
    /// In bytes.
    length: u64,
    /// The writer has ended.
    ended: bool,
}

#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    last: u64,
    closed: bool,
}

#[derive(Default)]
struct WriteQueue {
    queue: Mutex<Queue>,
    more: Condvar,
}

impl WriteQueue {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A panic leaves the queue consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open ledger file.
pub(super) struct LedgerFile {
    file: Arc<File>,
    writes: Arc<WriteQueue>,
    durable: watch::Receiver<Durable>,
    writer: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl LedgerFile {
    /// Opens or creates a file; without a path, a temporary one. Calls `line` with each line; false means that the line
    /// is damaged. Returns how many bytes of an incomplete last line were cut off.
    pub(super) fn open(path: Option<&Path>, mut line: impl FnMut(&[u8]) -> bool) -> Result<(Self, u64), Error> {
        let shown = path.unwrap_or(Path::new("a temporary file")).to_owned();
        let open_error = |source| Error::Open { path: shown.clone(), source };
        let (file, cut) = match path {
            None => (tempfile::tempfile().map_err(open_error)?, 0),
            Some(path) => {
                let file = File::options().read(true).append(true).create(true).open(path).map_err(open_error)?;
                if !file.metadata().map_err(open_error)?.is_file() {
                    return Err(Error::Foreign { path: shown });
                }
                match file.try_lock() {
                    Ok(()) => {}
                    Err(TryLockError::WouldBlock) => return Err(Error::Busy { path: shown }),
                    Err(TryLockError::Error(source)) => return Err(open_error(source)),
                }
                let (whole, rest) = read(&file, &shown, &mut line)?;
                if rest > 0 {
                    file.set_len(whole).map_err(open_error)?;
                    file.sync_all().map_err(open_error)?;
                }
                (file, rest)
            }
        };
        let mut length = file.metadata().map_err(open_error)?.len();
        if length == 0 {
            (&file).write_all(HEADER).and_then(|()| file.sync_all()).map_err(open_error)?;
            // The directory entry of a new file must be durable too.
            if let Some(folder) = path.and_then(Path::parent) {
                let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                File::open(folder).and_then(|folder| folder.sync_all()).map_err(open_error)?;
            }
            length = HEADER.len() as u64;
        }
        (&file).seek(io::SeekFrom::End(0)).map_err(open_error)?;
        let file = Arc::new(file);
        let writes = Arc::new(WriteQueue::default());
        let (sender, durable) = watch::channel(Durable { line: LineNumber(0), length, ended: false });
        let writer = {
            let (file, writes) = (Arc::clone(&file), Arc::clone(&writes));
            let work = move || {
                let done = write(&file, &writes, &sender);
                sender.send_modify(|durable| durable.ended = true);
                done
            };
            std::thread::Builder::new().name("bank-ledger".to_owned()).spawn(work).map_err(open_error)?
        };
        Ok((Self { file, writes, durable, writer: Mutex::new(Some(writer)) }, cut))
    }

    /// Appends a line, which must not contain a line end. A caller that needs an order must hold its own lock.
    pub(super) fn append(&self, line: &[u8]) -> LineNumber {
        let mut queue = self.writes.lock();
        queue.bytes.extend_from_slice(line);
        queue.bytes.push(b'\n');
        queue.last += 1;
        let line = LineNumber(queue.last);
        drop(queue);
        self.writes.more.notify_one();
        line
    }

    /// Waits until a line is durable. False if the writer ended before.
    pub(super) async fn durable(&self, line: LineNumber) -> bool {
        let mut durable = self.durable.clone();
        let reached = durable.wait_for(|durable| durable.line >= line || durable.ended).await;
        reached.is_ok_and(|durable| durable.line >= line)
    }

    /// Waits until the writer has ended.
    pub(super) async fn ended(&self) {
        let mut durable = self.durable.clone();
        // A dropped sender means that the writer has ended too.
        let _ = durable.wait_for(|durable| durable.ended).await;
    }

    /// Makes all appended lines durable and ends the writer.
    pub(super) fn close(&self) -> Result<(), Error> {
        self.writes.lock().closed = true;
        self.writes.more.notify_one();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        match writer.map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(Error::Write(error)),
            Some(Err(_)) => Err(Error::Write(io::Error::other("the writer panicked"))),
        }
    }

    /// A reader of the durable lines after the header. It does not block writers.
    pub(super) fn reader(&self) -> impl io::BufRead + use<> {
        let end = self.durable.borrow().length;
        BufReader::with_capacity(64 * 1024, Section { file: Arc::clone(&self.file), at: HEADER.len() as u64, end })
    }
}

/// Reads a ledger file. Returns the bytes of complete lines, and the bytes after them.
fn read(file: &File, path: &Path, line: &mut impl FnMut(&[u8]) -> bool) -> Result<(u64, u64), Error> {
    let open_error = |source| Error::Open { path: path.to_owned(), source };
    let mut reader = BufReader::with_capacity(1024 * 1024, file);
    let (mut whole, mut number) = (0, 0);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes).map_err(open_error)?;
        let read = read as u64;
        number += 1;
        let ends = bytes.last() == Some(&b'\n');
        if number == 1 && bytes != HEADER {
            // A bank that was killed while writing its header leaves a part of it.
            return if HEADER.starts_with(&bytes) {
                Ok((0, read))
            } else {
                Err(Error::Foreign { path: path.to_owned() })
            };
        }
        if !ends && read < MAX_LINE_BYTES {
            return Ok((whole, read));
        }
        if !ends || (number > 1 && !line(&bytes)) {
            return Err(Error::Damaged { path: path.to_owned(), line: number });
        }
        whole += read;
    }
}

/// The writer: writes and syncs queued lines until the queue is closed.
fn write(mut file: &File, writes: &WriteQueue, durable: &watch::Sender<Durable>) -> io::Result<()> {
    loop {
        let mut queue = writes.lock();
        while queue.bytes.is_empty() {
            if queue.closed {
                return Ok(());
            }
            queue = writes.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let bytes = std::mem::take(&mut queue.bytes);
        let last = LineNumber(queue.last);
        drop(queue);
        file.write_all(&bytes)?;
        file.sync_data()?;
        durable.send_modify(|durable| {
            durable.line = last;
            durable.length += bytes.len() as u64;
        });
    }
}

/// A section of the file with its own position.
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
