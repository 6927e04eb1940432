//! The manifest of an archive: what it holds, and the digest of each file.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The file of the manifest, in the folder of the archive.
pub(super) const FILE: &str = "manifest.json";
/// The format of archives that this build writes and reads.
pub(super) const FORMAT: &str = "symphony-ledger-archive/1";

/// A SHA-256 digest.
pub(super) type Digest = [u8; 32];

/// What an archive holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Always [`FORMAT`].
    pub(super) format: String,
    pub(super) archive_name: String,
    pub(super) database: String,
    pub(super) schema_version: i32,
    pub(super) partition: String,
    /// The lowest outbox id of the partition; none for the first.
    pub(super) from_id: Option<String>,
    /// The partition holds lower ids than this.
    pub(super) to_id: String,
    pub(super) starts_at: Option<Timestamp>,
    pub(super) ends_at: Timestamp,
    pub(super) exported_at: Timestamp,
    #[serde(flatten)]
    pub(super) content: Content,
    pub(super) files: Vec<Part>,
}

/// The rows of an archive in numbers. The same is computed when the archive is read back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Content {
    pub(super) rows: i64,
    pub(super) outboxes: i64,
    pub(super) rows_by_state: BTreeMap<String, i64>,
    pub(super) first_outbox_id: Option<String>,
    pub(super) last_outbox_id: Option<String>,
    pub(super) first_created_at: Option<Timestamp>,
    pub(super) last_completed_at: Option<Timestamp>,
    /// 32 zero bytes, and for each line: SHA-256 of the digest so far and the line without its end.
    pub(super) content_sha256: String,
}

/// A file of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) rows: i64,
    pub(super) bytes: u64,
    pub(super) uncompressed_bytes: u64,
    pub(super) sha256: String,
}

/// Computes the [`Content`] of rows, one line after the other, in constant memory.
#[derive(Default)]
pub(super) struct Summary {
    content: Content,
    digest: Digest,
}

/// The fields of a row that a summary needs.
#[derive(Deserialize)]
struct Row<'a> {
    outbox_id: &'a str,
    state: &'a str,
    created_at: Timestamp,
    completed_at: Timestamp,
}

impl Summary {
    /// Adds a row. The line has no line end.
    pub(super) fn add(&mut self, line: &str) -> Result<(), serde_json::Error> {
        let row: Row<'_> = serde_json::from_str(line)?;
        let content = &mut self.content;
        content.rows += 1;
        if content.last_outbox_id.as_deref() != Some(row.outbox_id) {
            content.outboxes += 1;
            content.first_outbox_id.get_or_insert_with(|| row.outbox_id.to_owned());
            content.last_outbox_id = Some(row.outbox_id.to_owned());
        }
        match content.rows_by_state.get_mut(row.state) {
            Some(rows) => *rows += 1,
            None => {
                content.rows_by_state.insert(row.state.to_owned(), 1);
            }
        }
        content.first_created_at = content.first_created_at.min(Some(row.created_at)).or(Some(row.created_at));
        content.last_completed_at = content.last_completed_at.max(Some(row.completed_at));
        self.digest = Sha256::new().chain_update(self.digest).chain_update(line).finalize().into();
        Ok(())
    }

    /// The rows so far.
    pub(super) fn rows(&self) -> i64 {
        self.content.rows
    }

    /// The content, and its digest.
    pub(super) fn finish(self) -> (Content, Digest) {
        (Content { content_sha256: hex(&self.digest), ..self.content }, self.digest)
    }
}

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_rows_and_outboxes_and_depends_on_their_order() {
        let line = |id: &str, state: &str| {
            format!(
                r#"{{"outbox_id":"{id}","state":"{state}","payload":{{"state":"other"}},
                    "created_at":"2026-01-01T00:00:0{}+00:00","completed_at":"2026-01-01T00:00:05.5+00:00"}}"#,
                id.len()
            )
        };
        let of = |lines: &[String]| {
            let mut summary = Summary::default();
            for line in lines {
                summary.add(line).unwrap();
            }
            summary.finish().0
        };
        let content = of(&[line("a", "RETRYABLE"), line("a", "FAILED"), line("bb", "FAILED")]);
        assert_eq!((content.rows, content.outboxes), (3, 2));
        assert_eq!(content.rows_by_state, [("FAILED".to_owned(), 2), ("RETRYABLE".to_owned(), 1)].into());
        assert_eq!(
            (content.first_outbox_id.as_deref(), content.last_outbox_id.as_deref()),
            (Some("a"), Some("bb"))
        );
        assert_eq!(content.first_created_at.unwrap().to_string(), "2026-01-01T00:00:01Z");
        let other = of(&[line("a", "FAILED"), line("a", "RETRYABLE"), line("bb", "FAILED")]);
        assert_ne!(content.content_sha256, other.content_sha256);
        assert_eq!(of(&[]).content_sha256, "0".repeat(64));
    }
}
