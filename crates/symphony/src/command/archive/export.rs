//! Writes the rows of a partition to compressed files, and renames their folder when all is on disk.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use futures_util::{TryStreamExt as _, pin_mut};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use symphony_db::payment::{archive, reader::PartitionToArchive};
use symphony_db::schema;
use tokio_postgres::Client;

use super::manifest::{FILE, FORMAT, Manifest, Part, Summary, hex};
use crate::{failure::Failure, progress};

/// The level of compression: higher ones cost more time than they save.
const ZSTD_LEVEL: i32 = 3;
/// How often progress is shown.
const PROGRESS_ROWS: i64 = 10_000;

/// Where an archive goes, and how large its files become.
pub(super) struct Export<'a> {
    pub(super) partition: &'a PartitionToArchive,
    pub(super) archive_name: &'a str,
    pub(super) database: &'a str,
    pub(super) folder: &'a Path,
    /// A file ends when its rows take this many bytes uncompressed.
    pub(super) part_bytes: u64,
}

impl Export<'_> {
    /// Writes the archive. An interrupted export leaves a hidden folder, which the next one replaces.
    pub(super) async fn run(&self, client: &Client) -> Result<PathBuf, Failure> {
        let partial = self.folder.join(format!(".{}.partial", self.archive_name));
        let done = self.folder.join(self.archive_name);
        match fs::remove_dir_all(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(file_failure("remove", &partial, error));
            }
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&partial).map_err(|error| file_failure("create", &partial, error))?;

        let (mut summary, mut parts, mut open) = (Summary::default(), Vec::new(), None::<OpenPart>);
        let rows = archive::rows(client, self.partition.from_id, self.partition.to_id).await?;
        pin_mut!(rows);
        while let Some(row) = rows.try_next().await? {
            let line: &str = row.try_get(0)?;
            summary
                .add(line)
                .map_err(|error| Failure::because("a row of the ledger is not readable JSON", error))?;
            let part = match &mut open {
                Some(part) => part,
                None => open.insert(OpenPart::create(&partial, parts.len() + 1)?),
            };
            part.write(line)?;
            if part.uncompressed_bytes >= self.part_bytes
                && let Some(part) = open.take()
            {
                parts.push(part.close()?);
            }
            if summary.rows() % PROGRESS_ROWS == 0 {
                progress::show(&format!("{}: {} rows exported", self.archive_name, summary.rows()));
            }
        }
        // An archive of no rows has one empty file, so that a reader of *.zst finds one.
        if open.is_none() && parts.is_empty() {
            open = Some(OpenPart::create(&partial, 1)?);
        }
        if let Some(part) = open {
            parts.push(part.close()?);
        }

        let (content, _) = summary.finish();
        let manifest = Manifest {
            format: FORMAT.to_owned(),
            archive_name: self.archive_name.to_owned(),
            database: self.database.to_owned(),
            schema_version: schema::VERSION,
            partition: self.partition.partition_name.clone(),
            from_id: self.partition.from_id.map(|id| id.to_string()),
            to_id: self.partition.to_id.to_string(),
            starts_at: self.partition.starts_at,
            ends_at: self.partition.ends_at,
            exported_at: Timestamp::now(),
            content,
            files: parts,
        };
        let text = serde_json::to_string_pretty(&manifest)
            .map_err(|error| Failure::because("cannot write the manifest", error))?;
        let path = partial.join(FILE);
        let write = || {
            let mut file = create_file(&path)?;
            writeln!(file, "{text}")?;
            file.sync_all()?;
            // The names of the files, the new name of the folder, and then the name in its own folder are on disk.
            File::open(&partial)?.sync_all()?;
            fs::rename(&partial, &done)?;
            File::open(self.folder)?.sync_all()
        };
        write().map_err(|error| file_failure("write", &path, error))?;
        progress::clear();
        Ok(done)
    }
}

fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

pub(super) fn file_failure(verb: &str, path: &Path, error: io::Error) -> Failure {
    Failure::because(format!("cannot {verb} {}", path.display()), error)
        .hint("check the folder of --to, its rights and its free space; then run it again: nothing was dropped")
}

/// A file that is being written: rows go through zstd, and its bytes through SHA-256.
struct OpenPart {
    name: String,
    path: PathBuf,
    encoder: zstd::Encoder<'static, HashingFile>,
    rows: i64,
    uncompressed_bytes: u64,
}

impl OpenPart {
    fn create(folder: &Path, number: usize) -> Result<Self, Failure> {
        let name = format!("part-{number:05}.ndjson.zst");
        let path = folder.join(&name);
        let open = || {
            let file = HashingFile { file: create_file(&path)?, hash: Sha256::new(), bytes: 0 };
            let mut encoder = zstd::Encoder::new(file, ZSTD_LEVEL)?;
            encoder.include_checksum(true)?;
            Ok(encoder)
        };
        let encoder = open().map_err(|error| file_failure("create", &path, error))?;
        Ok(Self { name, path, encoder, rows: 0, uncompressed_bytes: 0 })
    }

    fn write(&mut self, line: &str) -> Result<(), Failure> {
        let write = |encoder: &mut dyn Write| {
            encoder.write_all(line.as_bytes())?;
            encoder.write_all(b"\n")
        };
        write(&mut self.encoder).map_err(|error| file_failure("write", &self.path, error))?;
        self.rows += 1;
        self.uncompressed_bytes += line.len() as u64 + 1;
        Ok(())
    }

    fn close(self) -> Result<Part, Failure> {
        let sync = |encoder: zstd::Encoder<'static, HashingFile>| {
            let file = encoder.finish()?;
            file.file.sync_all()?;
            Ok(file)
        };
        let file = sync(self.encoder).map_err(|error| file_failure("write", &self.path, error))?;
        Ok(Part {
            name: self.name,
            rows: self.rows,
            bytes: file.bytes,
            uncompressed_bytes: self.uncompressed_bytes,
            sha256: hex(&file.hash.finalize()),
        })
    }
}

struct HashingFile {
    file: File,
    hash: Sha256,
    bytes: u64,
}

impl Write for HashingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
