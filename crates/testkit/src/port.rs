//! Free ports on the loopback address for test servers.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// The address on which all test servers listen.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Below the ephemeral port range. In that range, a client that connects while the server is down could get the
/// server's port as its own, or even connect to itself.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A port that is free now. Another process may take it before the caller does; the caller then tries another.
pub(crate) fn free_port() -> io::Result<u16> {
    // A random start, so that servers that start at the same time do not all try the same port.
    let width = u64::from(PORTS.end - PORTS.start);
    let start = RandomState::new().hash_one(std::process::id()) % width;
    (0..width)
        .filter_map(|step| u16::try_from(u64::from(PORTS.start) + (start + step) % width).ok())
        .find(|port| TcpListener::bind((HOST, *port)).is_ok())
        .ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, format!("all ports of {PORTS:?} are in use")))
}
