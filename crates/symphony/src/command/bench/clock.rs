//! The clock that all processes of a machine share: it never goes back, and nobody sets it.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment that is the same for every process.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or_default())
}
