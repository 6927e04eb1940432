//! The monotonic clock that all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since a start that is the same for every process.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or_default())
}
