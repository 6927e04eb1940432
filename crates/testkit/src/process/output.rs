//! The output of a program, line by line, up to a limit.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, PipeReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::watch;

/// How many lines are kept; the oldest are dropped.
const MAX_LINES: usize = 20_000;
/// How much of a line is kept.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// How many lines an error shows.
const TAIL_LINES: usize = 40;

/// The lines of stdout and stderr, in the order in which they were read.
#[derive(Debug)]
pub(super) struct Output {
    kept: Mutex<Kept>,
    /// Notified of every line and of the end of an output.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<String>,
    /// How many lines were dropped.
    dropped: usize,
    /// How many outputs are still open.
    open: usize,
}

impl Output {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { kept: Mutex::default(), changed: watch::Sender::new(()) })
    }

    /// Reads this pipe to its end in the background.
    pub(super) fn collect(self: &Arc<Self>, pipe: PipeReader) -> io::Result<()> {
        self.lock().open += 1;
        let output = Arc::clone(self);
        let reader = move || {
            let mut pipe = BufReader::new(pipe);
            while let Ok(Some(line)) = next_line(&mut pipe) {
                output.push(line);
            }
            output.lock().open -= 1;
            output.changed.send_replace(());
        };
        thread::Builder::new().name("output".into()).spawn(reader)?;
        Ok(())
    }

    /// How many lines were written.
    pub(super) fn count(&self) -> usize {
        let kept = self.lock();
        kept.dropped + kept.lines.len()
    }

    /// The last lines, for an error message.
    pub(super) fn tail(&self) -> String {
        let kept = self.lock();
        let skipped = kept.lines.len().saturating_sub(TAIL_LINES);
        let lines: Vec<&str> = kept.lines.iter().skip(skipped).map(String::as_str).collect();
        if lines.is_empty() { "(nothing)".into() } else { lines.join("\n") }
    }

    /// Waits for the first matching line at or after a position. Returns `None` if the outputs end without one.
    pub(super) async fn find(&self, from: usize, mut wanted: impl FnMut(&str) -> bool) -> Option<String> {
        let mut changed = self.changed.subscribe();
        let mut next = from;
        loop {
            {
                let kept = self.lock();
                let skipped = next.saturating_sub(kept.dropped);
                if let Some(line) = kept.lines.iter().skip(skipped).find(|line| wanted(line)) {
                    return Some(line.clone());
                }
                next = next.max(kept.dropped + kept.lines.len());
                if kept.open == 0 {
                    return None;
                }
            }
            // `self` owns the sender, so the channel cannot be closed.
            let _ = changed.changed().await;
        }
    }

    /// Returns when both outputs have been read to their end.
    pub(super) async fn ends(&self) {
        self.find(usize::MAX, |_| false).await;
    }

    fn push(&self, line: String) {
        let mut kept = self.lock();
        if kept.lines.len() == MAX_LINES {
            kept.lines.pop_front();
            kept.dropped += 1;
        }
        kept.lines.push_back(line);
        drop(kept);
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The next line without its line break, truncated if it is too long; `None` at the end of the output.
fn next_line(pipe: &mut BufReader<PipeReader>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if pipe.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else {
        pipe.skip_until(b'\n')?;
    }
    Ok(Some(String::from_utf8_lossy(&line).into_owned()))
}
