//! Reads an archive from disk and compares it with its manifest.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::manifest::{Digest, FILE, FORMAT, Manifest, Summary, hex};
use crate::{failure::Failure, progress};

/// The longest row: a payload has at most 256 KiB, which JSON text can make several times as long.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// An archive that was read from its first to its last byte.
pub(super) struct Archive {
    pub(super) manifest: Manifest,
    pub(super) manifest_digest: Digest,
    pub(super) content_digest: Digest,
}

/// The SHA-256 of the manifest in this folder.
pub(super) fn manifest_digest(folder: &Path) -> Result<String, Failure> {
    let bytes = fs::read(folder.join(FILE)).map_err(|error| damaged(folder, &error.to_string()))?;
    Ok(hex(&Sha256::digest(bytes)))
}

/// Reads the archive in this folder.
pub(super) fn read(folder: &Path) -> Result<Archive, Failure> {
    let bytes = fs::read(folder.join(FILE)).map_err(|error| damaged(folder, &error.to_string()))?;
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|error| damaged(folder, &error.to_string()))?;
    if manifest.format != FORMAT {
        return Err(damaged(folder, &format!("its format is {}, and this build reads {FORMAT}", manifest.format)));
    }
    let mut summary = Summary::default();
    for part in &manifest.files {
        let rows_before = summary.rows();
        let (bytes, sha256) = read_part(&folder.join(&part.name), &mut summary)
            .map_err(|error| damaged(folder, &format!("{}: {error}", part.name)))?;
        if (bytes, sha256, summary.rows() - rows_before) != (part.bytes, part.sha256.clone(), part.rows) {
            return Err(damaged(folder, &format!("{} is not what the manifest says", part.name)));
        }
        progress::show(&format!("{}: {} rows read back", manifest.archive_name, summary.rows()));
    }
    progress::clear();
    let (content, content_digest) = summary.finish();
    if content != manifest.content {
        return Err(damaged(folder, "its rows are not what the manifest says"));
    }
    Ok(Archive { manifest, manifest_digest: Sha256::digest(bytes).into(), content_digest })
}

/// Adds the rows of a file. Returns its size and digest.
fn read_part(path: &Path, summary: &mut Summary) -> io::Result<(u64, String)> {
    let hashing = HashingReader { inner: File::open(path)?, hash: Sha256::new(), bytes: 0 };
    let mut lines = BufReader::new(zstd::Decoder::new(hashing)?);
    let mut line = String::new();
    loop {
        line.clear();
        if lines.by_ref().take(MAX_LINE_BYTES).read_line(&mut line)? == 0 {
            break;
        }
        let text = line.strip_suffix('\n').ok_or(io::ErrorKind::UnexpectedEof)?;
        summary.add(text)?;
    }
    let mut hashing = lines.into_inner().finish();
    // What follows the compressed data belongs to the file as well.
    io::copy(&mut hashing, &mut io::sink())?;
    let hashing = hashing.into_inner();
    Ok((hashing.bytes, hex(&hashing.hash.finalize())))
}

fn damaged(folder: &Path, why: &str) -> Failure {
    Failure::new(format!("the archive in {} is damaged or incomplete: {why}", folder.display()))
        .hint("move that folder away, and run it again: nothing was dropped")
}

struct HashingReader {
    inner: File,
    hash: Sha256,
    bytes: u64,
}

impl Read for HashingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(buffer.get(..read).unwrap_or_default());
        self.bytes += read as u64;
        Ok(read)
    }
}
