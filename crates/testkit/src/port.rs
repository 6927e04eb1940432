//! Free ports on the loopback address for test servers.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// The address on which all test servers listen.
pub(crate) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Below the ephemeral port range. In that range, a client that connects while the server is down could get the
/// server's port as its own, or even connect to itself.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// The ports of clusters whose servers take seconds to listen: no other test may take one meanwhile.
const BLOCKS: std::ops::Range<u16> = 30_000..32_768;
/// How many ports a block has.
const BLOCK: u16 = 16;

/// Consecutive ports that are free now, and that no other call in this or a neighbouring process is likely to get.
pub(crate) fn free_block<const N: usize>() -> io::Result<[u16; N]> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let blocks = u32::from((BLOCKS.end - BLOCKS.start) / BLOCK);
    // Tests that run side by side have different pids, or count on.
    let start = std::process::id().wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed));
    let free = |ports: &[u16; N]| ports.iter().all(|port| TcpListener::bind((HOST, *port)).is_ok());
    (0..blocks)
        .filter_map(|step| u16::try_from(start.wrapping_add(step) % blocks).ok())
        .filter_map(|block| {
            (BLOCKS.start + block * BLOCK..).take(N.min(BLOCK.into())).collect::<Vec<_>>().try_into().ok()
        })
        .find(free)
        .ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, format!("all ports of {BLOCKS:?} are in use")))
}

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
