//! Ports on the loopback address for servers that come and go.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Where everything of the kit listens, and nothing else does.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Below the range from which systems number outgoing connections. In it, a client that knocks while the server is
/// down can take the server's port, or even connect to itself.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A port that is free at this moment. Another process may take it before the caller does, who then tries another.
pub(crate) fn free_port() -> io::Result<u16> {
    // Anywhere in the range, so that servers that start together do not all try the same one.
    let width = u64::from(PORTS.end - PORTS.start);
    let start = RandomState::new().hash_one(std::process::id()) % width;
    (0..width)
        .filter_map(|step| u16::try_from(u64::from(PORTS.start) + (start + step) % width).ok())
        .find(|port| TcpListener::bind((HOST, *port)).is_ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, format!("all of {PORTS:?} are taken")))
}
