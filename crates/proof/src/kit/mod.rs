//! What a proof needs around it and does not want to know about: servers to talk to, a database of its own, programs
//! to kill and networks to break.
//!
//! # Layout
//!
//! - [`postgres`]: a private PostgreSQL, crashed, restarted, followed by a standby and failed over to order
//! - [`scratch`]: a database with Symphony installed, one for each test
//! - [`crowd`]: databases with very much in them
//! - [`pgbouncer`]: a connection pooler in front of a server
//! - [`brokers`]: NATS, Redis and RabbitMQ, started, stopped, killed and started again
//! - [`prometheus`]: a Prometheus that scrapes and judges by rules, and its promtool
//! - [`proxy`]: a network between a client and its server that stalls, breaks, and loses replies
//! - [`process`]: a program that is started, watched, stopped and killed
//! - [`audit`]: the outbox and a bank's own ledger, compared payment by payment
//! - [`tool`]: a browser, and what tries an API by its description
//! - [`wait`]: until something is so, or it is too late
//! - `account`, `address`, `cache`, `folder`, `port`: what the servers have in common

mod account;
mod address;
pub mod audit;
pub mod brokers;
mod cache;
pub mod crowd;
mod folder;
pub mod pgbouncer;
mod port;
pub mod postgres;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod scratch;
pub mod tool;
pub mod wait;
