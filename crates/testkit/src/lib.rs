//! The test harness: test databases, servers, processes, fault proxies and sample data, for tests, proofs, the demo and
//! the benchmarks.
//!
//! # For your own tests
//!
//! Four modules are meant for services that enqueue and for programs that run a relayer:
//!
//! - [`test_database`]: a database with Symphony installed, one for each test
//! - [`scripted_rail`]: a rail that fails on demand
//! - [`time_travel`]: makes leases expire and payments due, so that no test waits
//! - [`wait`]: waits for a condition, with a timeout
//!
//! `docs/your-own-rail.md` shows a test with them. The others may change with every version.
//!
//! # Layout
//!
//! - [`postgres`]: a private PostgreSQL that can crash, restart, have a standby and fail over
//! - [`test_database`], [`scripted_rail`], [`time_travel`], [`wait`]: see above
//! - [`bulk_rows`]: large tables for plans and benchmarks
//! - [`epoch`]: a server that seems to have been promoted
//! - [`ledger_partitions`]: a ledger of many weeks
//! - [`explain`]: the pages that a statement reads
//! - [`bench_database`]: row counts, settings and resource usage for benchmarks
//! - [`pgbouncer`]: a connection pooler in front of a server
//! - [`brokers`]: NATS, Redis and RabbitMQ that can be stopped, killed and restarted
//! - [`patroni`]: three servers under Patroni, with etcd and HAProxy
//! - [`prometheus`]: a Prometheus that scrapes and evaluates rules, and its promtool
//! - [`proxy`]: a fault proxy that stalls, closes connections and loses replies
//! - [`process`]: child processes and their output
//! - [`protocol`]: the rules of the payment protocol, for its model and for the replay of a run
//! - [`reconciliation`]: compares the outbox with the records of the bank, broker or store
//! - [`seeded_rng`]: random numbers that a seed repeats
//! - [`shop`]: the sample shop of the demo
//! - [`tool`]: finds Chromium, schemathesis and the interpreters of the reference adapters
//! - `account`, `address`, `cache`, `folder`, `port`: shared by the servers

mod account;
mod address;
pub mod bench_database;
pub mod brokers;
pub mod bulk_rows;
mod cache;
pub mod epoch;
pub mod explain;
mod folder;
pub mod ledger_partitions;
pub mod patroni;
pub mod pgbouncer;
mod port;
pub mod postgres;
pub mod process;
pub mod prometheus;
pub mod protocol;
pub mod proxy;
pub mod reconciliation;
pub mod scripted_rail;
pub mod seeded_rng;
pub mod shop;
pub mod test_database;
pub mod time_travel;
pub mod tool;
pub mod wait;
