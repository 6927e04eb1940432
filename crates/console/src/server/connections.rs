//! The open connections, and which of them is closed for a new one.
//!
//! The order in which connections are closed, within the address that has the most:
//! 1. the one that has kept the server waiting longest, if that is longer than [`WAIT_LIMIT`]: for a head, for a body,
//!    for its answer to be read, or idle between two requests;
//! 2. one that already got a response and sends more requests;
//! 3. one that has not sent a request yet;
//! 4. one that waits for its first response.
//!
//! Among equals the oldest is closed. A client can become younger only by connecting again, so a prober that connects
//! and sends its request at once gets a response, unless an attacker fills the whole table in that time.
//!
//! A request that changes something is never cut off once it has arrived.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::Method;
use tokio::sync::Notify;

/// How long a client may keep the server waiting before its connection is the first to be closed.
const WAIT_LIMIT: Duration = Duration::from_secs(1);
/// The shortest time between two warnings about closed connections.
const WARNING_INTERVAL: Duration = Duration::from_mins(1);
/// The server is not waiting.
const NEVER: u64 = u64::MAX;

/// All connections of one listener.
pub(super) struct Connections {
    total: usize,
    per_peer: usize,
    /// By the order in which they were accepted.
    open: Mutex<Table>,
    began: Instant,
}

#[derive(Default)]
struct Table {
    next: u64,
    rows: BTreeMap<u64, (IpAddr, Arc<State>)>,
    per_peer: HashMap<IpAddr, usize>,
    warned: Option<Instant>,
}

/// The state of one connection.
pub(super) struct State {
    began: Instant,
    /// Since when the server waits for a head or a body, in milliseconds; [`NEVER`] if it does not.
    reads_since: AtomicU64,
    /// Since when a response cannot be written because the client does not read it.
    writes_since: AtomicU64,
    /// Whether a request of it was answered.
    is_answered: AtomicBool,
    /// Whether a request that changes something has arrived and is not answered.
    is_acting: AtomicBool,
    close: Notify,
}

/// A connection that is counted until this is dropped.
pub(super) struct Open {
    number: u64,
    state: Arc<State>,
    connections: Arc<Connections>,
}

impl Connections {
    pub(super) fn new(total: usize, per_peer: usize) -> Self {
        Self { total, per_peer, open: Mutex::default(), began: Instant::now() }
    }

    /// Adds a connection from this address, and closes another if the table is full; none if none may be closed.
    pub(super) fn open(self: &Arc<Self>, address: IpAddr) -> Option<Open> {
        let peer = peer(address);
        let state = Arc::new(State::new(self.began));
        let mut table = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if table.per_peer.get(&peer).is_some_and(|count| *count >= self.per_peer) {
            table.close_one_of(peer, &state)?;
        } else if table.rows.len() >= self.total {
            let mut busiest: Vec<_> = table.per_peer.iter().map(|(peer, count)| (*count, *peer)).collect();
            busiest.sort_unstable_by(|one, other| other.cmp(one));
            busiest.into_iter().find_map(|(_, peer)| table.close_one_of(peer, &state))?;
        }
        let number = table.next;
        table.next += 1;
        table.rows.insert(number, (peer, Arc::clone(&state)));
        *table.per_peer.entry(peer).or_default() += 1;
        drop(table);
        Some(Open { number, state, connections: Arc::clone(self) })
    }
}

impl Table {
    fn close_one_of(&mut self, peer: IpAddr, now: &State) -> Option<()> {
        let now = now.millis();
        let rows = self.rows.iter().filter(|(_, (of, state))| *of == peer && !state.is_busy_acting());
        let order = |(number, (_, state)): &(&u64, &(IpAddr, Arc<State>))| {
            let is_answered = state.is_answered.load(Ordering::Relaxed);
            (state.overdue_since(now).unwrap_or(NEVER), !is_answered, !state.waits_for_client(), **number)
        };
        let number = *rows.min_by_key(order)?.0;
        let (_, state) = self.remove(number)?;
        state.close.notify_one();
        self.warn_of(peer);
        Some(())
    }

    fn warn_of(&mut self, peer: IpAddr) {
        if self.warned.is_none_or(|at| at.elapsed() > WARNING_INTERVAL) {
            self.warned = Some(Instant::now());
            let (of_peer, all) = (self.per_peer.get(&peer).copied().unwrap_or_default(), self.rows.len());
            tracing::warn!(
                %peer, of_peer, all,
                "too many HTTP connections: closing the longest-waiting ones of the client that has the most"
            );
        }
    }

    fn remove(&mut self, number: u64) -> Option<(IpAddr, Arc<State>)> {
        let (peer, state) = self.rows.remove(&number)?;
        if let Some(count) = self.per_peer.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.per_peer.remove(&peer);
            }
        }
        Some((peer, state))
    }
}

impl State {
    fn new(began: Instant) -> Self {
        let state = Self {
            began,
            reads_since: AtomicU64::new(NEVER),
            writes_since: AtomicU64::new(NEVER),
            is_answered: AtomicBool::new(false),
            is_acting: AtomicBool::new(false),
            close: Notify::new(),
        };
        state.waits_to_read(true);
        state
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(NEVER - 1)
    }

    /// Marks whether the server waits for a head or a body. A repeated call does not restart the time.
    pub(super) fn waits_to_read(&self, waits: bool) {
        self.mark(&self.reads_since, waits);
    }

    /// Marks whether the server waits for the client to read a response.
    pub(super) fn waits_to_write(&self, waits: bool) {
        self.mark(&self.writes_since, waits);
    }

    fn mark(&self, since: &AtomicU64, waits: bool) {
        if !waits {
            since.store(NEVER, Ordering::Relaxed);
        } else if since.load(Ordering::Relaxed) == NEVER {
            since.store(self.millis(), Ordering::Relaxed);
        }
    }

    /// A head has arrived.
    pub(super) fn request_arrived(&self, method: &Method) {
        self.waits_to_read(false);
        self.is_acting.store(!method.is_safe(), Ordering::Relaxed);
    }

    /// The answer is known.
    pub(super) fn response_began(&self) {
        self.is_acting.store(false, Ordering::Relaxed);
    }

    /// The answer was handed over, and the next request is waited for.
    pub(super) fn response_ended(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
        self.waits_to_read(true);
    }

    fn waits_for_client(&self) -> bool {
        self.reads_since.load(Ordering::Relaxed) != NEVER
    }

    fn is_busy_acting(&self) -> bool {
        self.is_acting.load(Ordering::Relaxed) && !self.waits_for_client()
    }

    /// Since when this connection has kept the server waiting, if longer than [`WAIT_LIMIT`].
    fn overdue_since(&self, now: u64) -> Option<u64> {
        let since = self.reads_since.load(Ordering::Relaxed).min(self.writes_since.load(Ordering::Relaxed));
        let limit = u64::try_from(WAIT_LIMIT.as_millis()).unwrap_or(NEVER);
        (since.saturating_add(limit) < now).then_some(since)
    }

    /// Returns once the connection was chosen to make room for another.
    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }
}

impl Open {
    pub(super) fn state(&self) -> &Arc<State> {
        &self.state
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.open.lock().unwrap_or_else(PoisonError::into_inner).remove(self.number);
    }
}

/// The client of an address: an IPv4 address, or an IPv6 /64 network, from which one machine can choose addresses.
fn peer(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    fn is_closed(open: &Open) -> bool {
        !open.connections.open.lock().unwrap().rows.contains_key(&open.number)
    }

    #[test]
    fn a_new_connection_closes_the_oldest_of_the_same_address() {
        let connections = Arc::new(Connections::new(10, 2));
        let held: Vec<_> = [B, A, A, A].map(|peer| connections.open(peer).unwrap()).into_iter().collect();
        assert_eq!(held.iter().map(is_closed).collect::<Vec<_>>(), [false, true, false, false]);
        drop(held);
        assert!(connections.open.lock().unwrap().per_peer.is_empty());
    }

    #[test]
    fn when_the_table_is_full_the_address_with_the_most_connections_loses_one() {
        let connections = Arc::new(Connections::new(3, 3));
        let held = [B, A, A, B].map(|peer| connections.open(peer).unwrap());
        assert_eq!(held.each_ref().map(is_closed), [false, true, false, false]);
    }

    #[test]
    fn a_connection_that_keeps_the_server_waiting_is_closed_before_older_ones() {
        let connections = Arc::new(Connections::new(10, 3));
        let held = [A, A, A].map(|peer| connections.open(peer).unwrap());
        for open in &held {
            open.state.request_arrived(&Method::GET);
        }
        // As if that was long ago.
        let later = held[0].state.millis() + 5_000;
        held[1].state.waits_to_write(true);
        assert_eq!(held[0].state.overdue_since(later), None);
        assert!(held[1].state.overdue_since(later).is_some());
        held[1].state.waits_to_write(false);
        assert_eq!(held[1].state.overdue_since(later), None);
        held[2].state.response_ended();
        let new = connections.open(A).unwrap();
        assert_eq!(held.each_ref().map(is_closed), [false, false, true], "the one that was answered already");
        assert!(!is_closed(&new));
    }

    #[test]
    fn a_client_that_waits_for_its_first_response_is_closed_last() {
        let connections = Arc::new(Connections::new(10, 3));
        let held = [A, A, A].map(|peer| connections.open(peer).unwrap());
        held[0].state.request_arrived(&Method::GET);
        let mut new: Vec<_> = (0..2).map(|_| connections.open(A).unwrap()).collect();
        assert_eq!(held.each_ref().map(is_closed), [false, true, true]);
        new.push(connections.open(A).unwrap());
        assert_eq!((is_closed(&held[0]), is_closed(&new[0]), is_closed(&new[2])), (false, true, false));
    }

    #[test]
    fn a_request_that_changes_something_is_never_cut_off() {
        let connections = Arc::new(Connections::new(2, 2));
        let held = [A, A].map(|peer| connections.open(peer).unwrap());
        for open in &held {
            open.state.request_arrived(&Method::POST);
        }
        assert!(connections.open(A).is_none() && connections.open(B).is_none());
        // Its body is still on its way: nothing has been done yet.
        held[1].state.waits_to_read(true);
        assert!(connections.open(A).is_some());
        assert_eq!(held.each_ref().map(is_closed), [false, true]);
        held[0].state.response_began();
        assert!(connections.open(B).is_some());
    }

    #[test]
    fn an_ipv6_network_counts_as_one_client() {
        let counted = |text: &str| peer(text.parse().unwrap()).to_string();
        assert_eq!(counted("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(counted("::ffff:10.0.0.1"), "10.0.0.1");
    }
}
