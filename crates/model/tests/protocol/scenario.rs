//! Scenarios: which faults may happen, to how many payments. Each is small enough to be searched in full.

use symphony_db::payment::OnUnknown;

/// How the standby follows the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replication {
    /// A failover may lose commits that were acknowledged.
    Asynchronous,
    /// A commit is acknowledged once the standby has it, unless an operator cancels the wait.
    Synchronous,
}

/// The bounds of one search.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) payments: usize,
    pub(crate) max_attempts: i32,
    pub(crate) ordered: bool,
    pub(crate) on_unknown: OnUnknown,
    /// Whether the rail supports inquiries.
    pub(crate) inquiries: bool,
    /// Whether the bank forgets a key after its key memory.
    pub(crate) bank_forgets: bool,
    /// Whether the bank may refuse a payment.
    pub(crate) bank_refuses: bool,
    /// Whether the bank accepts payments, to decide and to report later, instead of executing them at once.
    pub(crate) bank_accepts: bool,
    /// Whether a request may reach the bank after its worker has given it up.
    pub(crate) late_requests: bool,
    /// Whether workers crash.
    pub(crate) crashes: bool,
    /// Whether the reply to a completion may be lost.
    pub(crate) lost_replies: bool,
    /// How many leases may be released.
    pub(crate) releases: u32,
    /// Whether a repair runs beside the claims.
    pub(crate) repairs: bool,
    /// Whether the rail moves to another endpoint, one worker after the other.
    pub(crate) endpoint_moves: bool,
    /// Whether there is a standby, and one failover.
    pub(crate) failover: Option<Replication>,
    /// Whether the clock of the new primary may be behind, so that leases which had expired are live again.
    pub(crate) clock_behind: bool,
    /// Whether workers have circuit breakers and payment 1 fails for ever.
    pub(crate) poison: bool,
}

/// Whether the long form was asked for.
pub(crate) fn is_long() -> bool {
    std::env::var("SYMPHONY_PROTOCOL").is_ok_and(|value| value == "long")
}

/// One payment, two workers, a bank that remembers its keys, and every fault of workers and networks.
pub(crate) fn remembering() -> Scenario {
    Scenario {
        name: "remembering bank",
        payments: 1,
        max_attempts: if is_long() { 4 } else { 3 },
        ordered: false,
        on_unknown: OnUnknown::Inquire,
        inquiries: true,
        bank_forgets: false,
        bank_refuses: true,
        bank_accepts: false,
        late_requests: true,
        crashes: true,
        lost_replies: false,
        releases: 1,
        repairs: false,
        endpoint_moves: false,
        failover: None,
        clock_behind: false,
        poison: false,
    }
}

/// A bank that forgets a key once the key memory has elapsed.
pub(crate) fn forgetful() -> Scenario {
    Scenario { name: "forgetful bank", bank_forgets: true, ..remembering() }
}

/// A rail that resends after an unknown outcome, because its bank answers no inquiry.
pub(crate) fn without_inquiry() -> Scenario {
    Scenario {
        name: "rail without inquiry",
        inquiries: false,
        on_unknown: OnUnknown::Resend,
        bank_forgets: true,
        ..remembering()
    }
}

/// A rail that resends only if the bank does not answer its inquiry.
pub(crate) fn resend_policy() -> Scenario {
    Scenario { name: "rail that resends", on_unknown: OnUnknown::Resend, ..forgetful() }
}

/// A rail that stops if the bank does not answer its inquiry.
pub(crate) fn stop_policy() -> Scenario {
    Scenario { name: "rail that stops", on_unknown: OnUnknown::Stop, ..forgetful() }
}

/// Repairs that run beside claims.
pub(crate) fn repair() -> Scenario {
    Scenario { name: "repair", repairs: true, late_requests: false, ..remembering() }
}

/// Two payments of one participant on an ordered rail.
pub(crate) fn ordered() -> Scenario {
    Scenario {
        name: "ordered rail",
        payments: 2,
        max_attempts: if is_long() { 3 } else { 2 },
        ordered: true,
        late_requests: is_long(),
        releases: 0,
        ..remembering()
    }
}

/// A rail that moves to another endpoint while relayers are replaced one by one.
pub(crate) fn moved_endpoint() -> Scenario {
    Scenario { name: "moved endpoint", endpoint_moves: true, releases: 0, ..remembering() }
}

/// An asynchronous failover that may lose commits, with a forgetful bank.
pub(crate) fn failover() -> Scenario {
    Scenario {
        name: "asynchronous failover",
        max_attempts: if is_long() { 3 } else { 2 },
        failover: Some(Replication::Asynchronous),
        lost_replies: true,
        releases: 0,
        ..forgetful()
    }
}

/// A synchronous standby whose waits may be cancelled.
pub(crate) fn synchronous() -> Scenario {
    Scenario { name: "synchronous failover", failover: Some(Replication::Synchronous), ..failover() }
}

/// A bank that accepts payments and decides later, and forgets; the rail resends where it may.
pub(crate) fn accepting() -> Scenario {
    Scenario {
        name: "accepting bank",
        bank_accepts: true,
        bank_refuses: false,
        bank_forgets: true,
        late_requests: is_long(),
        releases: 0,
        on_unknown: OnUnknown::Resend,
        ..remembering()
    }
}

/// The same, while the rail moves to another endpoint.
pub(crate) fn accepting_and_moved_endpoint() -> Scenario {
    Scenario {
        name: "accepting bank, moved endpoint",
        endpoint_moves: true,
        bank_forgets: false,
        on_unknown: OnUnknown::Inquire,
        ..accepting()
    }
}

/// A payment that fails for ever beside a healthy one.
pub(crate) fn breaker() -> Scenario {
    Scenario {
        name: "circuit breaker",
        payments: 2,
        max_attempts: if is_long() { 3 } else { 2 },
        poison: true,
        late_requests: false,
        crashes: false,
        bank_refuses: false,
        releases: 0,
        ..remembering()
    }
}

/// A failover while the rail moves to another endpoint: more than the protocol covers.
pub(crate) fn failover_and_moved_endpoint() -> Scenario {
    Scenario { name: "failover and moved endpoint", endpoint_moves: true, ..failover() }
}

/// A failover to a server whose clock is behind by more than a lease.
pub(crate) fn failover_with_clock_behind() -> Scenario {
    Scenario { name: "failover, clock behind", clock_behind: true, ..failover() }
}

/// Every scenario that the protocol covers.
pub(crate) fn all() -> Vec<Scenario> {
    vec![
        remembering(),
        forgetful(),
        without_inquiry(),
        resend_policy(),
        stop_policy(),
        repair(),
        ordered(),
        moved_endpoint(),
        failover(),
        synchronous(),
        breaker(),
        accepting(),
        accepting_and_moved_endpoint(),
    ]
}
