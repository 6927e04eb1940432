//! The state file of a relayer: the newest epoch that it has seen, and its last acknowledged completions of payments.
//!
//! A relayer that starts with it asks the database for these commits before it claims payments, as after a reconnect. So a
//! restore is noticed although every relayer was restarted with it. The file is replaced at most once per second,
//! whole or not at all, and at a stop. So it may lack the last second, and what was claimed without a result. It holds no payload,
//! no key and no lease token.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use symphony_db::payment::worker::Commit;
use symphony_db::{OutboxId, WorkerId};
use symphony_relay::payment::{History, SavedHistory};
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

use crate::failure::Failure;

/// The least time between two writes.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// What the file begins with. Another number is of another version of the program.
const FORMAT: &str = "symphony relayer state 1";
/// More than eight completions need.
const MAX_BYTES: u64 = 64 * 1024;

/// The file of a worker.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    worker: WorkerId,
    saved: SavedHistory,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    format: String,
    worker: String,
    epoch: Option<i64>,
    completions: Vec<Completion>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Completion {
    outbox_id: Uuid,
    claimed_at: Timestamp,
}

impl StateFile {
    /// Reads the file, or begins a new one. Leaves it as it is, because another process may use it; creates and removes a file
    /// beside it, so that a folder without the right to write is noticed now.
    pub(crate) fn open(path: &Path, worker: &WorkerId) -> Result<(Self, Arc<History>), Failure> {
        let saved = match read(path) {
            Ok(text) => parse(&text, worker).map_err(|reason| unusable(path, &reason))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => SavedHistory::default(),
            Err(error) => return Err(unusable(path, &error.to_string())),
        };
        let history = Arc::new(History::new(saved.clone()));
        let file = Self { path: path.to_owned(), worker: worker.clone(), saved };
        let beside = file.beside(".check");
        File::create(&beside).and_then(|_| fs::remove_file(&beside)).map_err(|error| {
            Failure::usage(format!("the state file {} cannot be written: {error}", path.display()))
                .hint("payment.state_file needs a folder in which the relayer may create files")
        })?;
        Ok((file, history))
    }

    /// The path of the file with this ending after its name.
    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        self.path.with_file_name(name)
    }

    /// Saves the history while `work` runs, and once more at its end.
    pub(crate) async fn keep<T>(mut self, history: &History, work: impl Future<Output = T>) -> T {
        let mut ticks = interval(SAVE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tokio::pin!(work);
        let mut is_failing = false;
        let result = loop {
            tokio::select! {
                result = &mut work => break result,
                _ = ticks.tick() => {}
            }
            (self, is_failing) = self.save(history.to_save(), is_failing).await;
        };
        self.save(history.to_save(), is_failing).await;
        result
    }

    /// Writes what has changed; whether that failed. The file keeps its last contents then.
    async fn save(mut self, history: SavedHistory, was_failing: bool) -> (Self, bool) {
        if history == self.saved {
            return (self, was_failing);
        }
        let (path, worker) = (self.path.clone(), self.worker.clone());
        let write = move || {
            let result = self.write(&history);
            if result.is_ok() {
                self.saved = history;
            }
            (self, result)
        };
        match tokio::task::spawn_blocking(write).await {
            Ok((file, Ok(()))) => (file, false),
            Ok((file, Err(error))) => {
                if !was_failing {
                    tracing::warn!(%error, file = %file.path.display(), "the state file is not written any more");
                }
                (file, true)
            }
            // The task neither panics nor is cancelled; the next save writes the file again.
            Err(_) => (Self { path, worker, saved: SavedHistory::default() }, true),
        }
    }

    /// Replaces the file: a reader finds the old contents or the new ones, whole.
    fn write(&self, history: &SavedHistory) -> io::Result<()> {
        let completions = history.completions.iter();
        let contents = Contents {
            format: FORMAT.to_owned(),
            worker: self.worker.as_str().to_owned(),
            epoch: history.epoch,
            completions: completions
                .map(|commit| Completion { outbox_id: commit.outbox_id.0, claimed_at: commit.claimed_at })
                .collect(),
        };
        let new = self.beside(".new");
        let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(serde_json::to_string(&contents)?.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn read(path: &Path) -> io::Result<String> {
    if fs::metadata(path)?.len() > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too large to be one"));
    }
    fs::read_to_string(path)
}

fn parse(text: &str, worker: &WorkerId) -> Result<SavedHistory, String> {
    let contents: Contents =
        serde_json::from_str(text).map_err(|error| format!("it is damaged, or no state file: {error}"))?;
    if contents.format != FORMAT {
        return Err(format!("its format is {:?}, not {FORMAT:?}", contents.format));
    }
    if contents.worker != worker.as_str() {
        return Err(format!("it is of the worker {:?}, not {:?}", contents.worker, worker.as_str()));
    }
    let commit = |completion: Completion| Commit {
        outbox_id: OutboxId(completion.outbox_id),
        claimed_at: completion.claimed_at,
        lease_token: None,
    };
    Ok(SavedHistory { epoch: contents.epoch, completions: contents.completions.into_iter().map(commit).collect() })
}

fn unusable(path: &Path, reason: &str) -> Failure {
    Failure::usage(format!("the state file {} cannot be used: {reason}", path.display())).hint(
        "give each worker a file and a name (relayer.worker) that stay the same. If the file is lost or damaged and the database \
         may have been restored since, run: symphony recover open. Then delete the file",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(number: u128) -> Commit {
        let claimed_at = Timestamp::from_microsecond(1_700_000_000_123_456).unwrap();
        Commit { outbox_id: OutboxId(Uuid::from_u128(number)), claimed_at, lease_token: None }
    }

    #[tokio::test]
    async fn what_was_saved_is_read_by_the_next_process_of_the_worker() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let (file, history) = StateFile::open(&path, &"worker-1".into()).unwrap();
        assert_eq!(history.to_save(), SavedHistory::default());
        let saved = SavedHistory { epoch: Some(4), completions: vec![completion(1), completion(2)] };
        file.keep(&History::new(saved.clone()), async {}).await;
        let (_, history) = StateFile::open(&path, &"worker-1".into()).unwrap();
        assert_eq!(history.to_save(), saved);
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["state.json"], "no temporary file is left");
    }

    #[test]
    fn a_damaged_or_foreign_file_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let refusal = |worker: &str| StateFile::open(&path, &worker.into()).unwrap_err().render();
        let (file, _) = StateFile::open(&path, &"worker-1".into()).unwrap();
        file.write(&SavedHistory { epoch: Some(1), completions: vec![completion(1)] }).unwrap();
        let other = refusal("worker-2");
        assert!(other.contains("worker \"worker-1\"") && other.contains("relayer.worker"), "{other}");
        let whole = fs::read_to_string(&path).unwrap();
        for damaged in ["", &whole[..whole.len() / 2], "[1]", &whole.replace("state 1", "state 2")] {
            fs::write(&path, damaged).unwrap();
            let refused = refusal("worker-1");
            assert!(refused.contains("symphony recover open"), "{refused}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), whole.replace("state 1", "state 2"), "it is left as it is");
        let nowhere = StateFile::open(&folder.path().join("missing/state.json"), &"worker-1".into());
        assert!(nowhere.unwrap_err().render().contains("cannot be written"));
    }
}
