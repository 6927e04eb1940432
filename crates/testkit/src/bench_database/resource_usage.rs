//! Resource usage of a server: CPU time, WAL, buffers. The difference of two readings is the cost of the work between
//! them.
//!
//! A session reports its statistics at its end, or about once a second: read them after the sessions have ended.

use std::fs;

use tokio_postgres::{Error, GenericClient};

const BEFORE_18: &str = "
    select w.wal_bytes::float8 as wal_bytes, w.wal_sync::float8 as wal_syncs, d.blks_hit::float8 as hit, d.blks_read::float8 as read,
           (d.xact_commit + d.xact_rollback)::float8 as transactions
    from pg_stat_wal w, pg_stat_database d
    where d.datname = current_database()";
const SINCE_18: &str = "
    select w.wal_bytes::float8 as wal_bytes,
           (select coalesce(sum(i.fsyncs), 0)::float8 from pg_stat_io i where i.object = 'wal') as wal_syncs,
           d.blks_hit::float8 as hit, d.blks_read::float8 as read,
           (d.xact_commit + d.xact_rollback)::float8 as transactions
    from pg_stat_wal w, pg_stat_database d
    where d.datname = current_database()";
const VERSION: &str = "select current_setting('server_version_num')::int4";
const BACKEND: &str = "select pg_backend_pid(), inet_client_port()";
/// The unit of CPU time in `/proc` (USER_HZ), which is 100 on every current architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// The resource usage of a server since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceUsage {
    /// CPU time of all processes of the server; `None` if it runs on another machine.
    pub cpu_seconds: Option<f64>,
    /// Bytes of WAL.
    pub wal_bytes: f64,
    /// How often the WAL was flushed to disk.
    pub wal_syncs: f64,
    /// Transactions in this database.
    pub transactions: f64,
    /// Buffers of this database that were found in shared buffers.
    pub buffers_hit: f64,
    /// Buffers of this database that had to be read.
    pub buffers_read: f64,
}

impl ResourceUsage {
    /// Reads the usage.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn read(client: &impl GenericClient, postmaster: Option<Postmaster>) -> Result<Self, Error> {
        let version: i32 = client.query_typed_one(VERSION, &[]).await?.try_get(0)?;
        let query = if version < 180_000 { BEFORE_18 } else { SINCE_18 };
        let row = client.query_typed_one(query, &[]).await?;
        Ok(Self {
            cpu_seconds: postmaster.and_then(Postmaster::cpu_seconds),
            wal_bytes: row.try_get("wal_bytes")?,
            wal_syncs: row.try_get("wal_syncs")?,
            transactions: row.try_get("transactions")?,
            buffers_hit: row.try_get("hit")?,
            buffers_read: row.try_get("read")?,
        })
    }

    /// The usage since another reading.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds.zip(before.cpu_seconds).map(|(after, before)| after - before),
            wal_bytes: self.wal_bytes - before.wal_bytes,
            wal_syncs: self.wal_syncs - before.wal_syncs,
            transactions: self.transactions - before.transactions,
            buffers_hit: self.buffers_hit - before.buffers_hit,
            buffers_read: self.buffers_read - before.buffers_read,
        }
    }
}

/// The main process of a server on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postmaster(u32);

impl Postmaster {
    /// The postmaster of the server of this session; `None` if it runs on another machine, or if its process titles do
    /// not show client ports.
    ///
    /// # Errors
    /// Any error of the database.
    pub async fn of(client: &impl GenericClient) -> Result<Option<Self>, Error> {
        let row = client.query_typed_one(BACKEND, &[]).await?;
        let (backend, port): (i32, Option<i32>) = (row.try_get(0)?, row.try_get(1)?);
        // A local process that happens to have the pid of a remote backend does not show our client port.
        let ours = port.map_or_else(|| "[local]".to_owned(), |port| format!("({port})"));
        let title = fs::read(format!("/proc/{backend}/cmdline")).unwrap_or_default();
        let title = String::from_utf8_lossy(&title);
        let is_ours = title.starts_with("postgres") && title.contains(&ours);
        let parent = u32::try_from(backend).ok().filter(|_| is_ours).and_then(stat).map(|stat| stat.parent);
        Ok(parent.map(Self))
    }

    /// The CPU time of the postmaster, of its children, and of children that have ended.
    ///
    /// A child that ends during the reading moves from the second to the third, and would be in neither: then it reads again.
    fn cpu_seconds(self) -> Option<f64> {
        loop {
            let own = stat(self.0)?;
            let mut ticks = own.ticks + own.ticks_of_ended;
            for entry in fs::read_dir("/proc").ok()?.flatten() {
                let child = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(stat);
                ticks += child
                    .filter(|child| child.parent == self.0)
                    .map_or(0.0, |child| child.ticks + child.ticks_of_ended);
            }
            if stat(self.0)?.ticks_of_ended.total_cmp(&own.ticks_of_ended).is_eq() {
                return Some(ticks / TICKS_PER_SECOND);
            }
        }
    }
}

/// The CPU time of a process of this machine, without its children.
#[must_use]
pub fn cpu_seconds(process: u32) -> Option<f64> {
    stat(process).map(|stat| stat.ticks / TICKS_PER_SECOND)
}

/// The peak resident memory of this process, if the system reports it.
#[must_use]
pub fn peak_memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

struct Stat {
    parent: u32,
    ticks: f64,
    /// CPU time of children that it has waited for.
    ticks_of_ended: f64,
}

fn stat(process: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name is in parentheses and may contain spaces and parentheses: parse what follows the last one.
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<f64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        ticks: number(11)? + number(12)?,
        ticks_of_ended: number(13)? + number(14)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_time_of_a_process_grows_while_it_works() {
        let before = cpu_seconds(std::process::id()).unwrap();
        let began = std::time::Instant::now();
        // A heavily loaded machine may take a while to give this process CPU time.
        while cpu_seconds(std::process::id()).unwrap() < before + 0.05 {
            assert!(began.elapsed() < crate::wait::DEFAULT_TIMEOUT, "no CPU time was counted");
            std::hint::black_box((0..100_000_u64).sum::<u64>());
        }
        assert_eq!(cpu_seconds(u32::MAX), None);
    }

    #[test]
    fn peak_memory_includes_memory_that_was_freed() {
        let held = vec![1_u8; 32 << 20];
        assert!(peak_memory_bytes().unwrap() > 32 << 20);
        drop(std::hint::black_box(held));
        assert!(peak_memory_bytes().unwrap() > 32 << 20, "the peak fell");
    }
}
