//! The outage of a place: once, in the middle of the run, and short.

use std::time::Duration;

use super::place::Place;
use crate::failure::Failure;

/// How long a place is down: long enough that the relayers miss it.
const LASTS: Duration = Duration::from_secs(1);

/// How far the outage is, by the time since the beginning.
pub(super) enum Outage {
    /// There is none.
    Never,
    /// It comes then.
    Ahead { after: Duration },
    /// The place is down until then.
    Now { until: Duration },
    /// The place was killed and started again.
    Over,
}

impl Outage {
    /// Does what is due, and says it.
    pub(super) async fn pass(&mut self, place: &mut Place, elapsed: Duration) -> Result<Option<String>, Failure> {
        match *self {
            Self::Ahead { after } if elapsed == Duration::MAX || elapsed < after => Ok(None),
            Self::Ahead { .. } => {
                place.kill().await?;
                *self = Self::Now { until: elapsed + LASTS };
                Ok(Some(format!("kill -9 {}, where events go", place.name())))
            }
            Self::Now { until } if elapsed >= until => {
                place.revive().await?;
                *self = Self::Over;
                Ok(Some(format!("{} started again", place.name())))
            }
            Self::Now { .. } | Self::Never | Self::Over => Ok(None),
        }
    }

    /// How many places were killed.
    pub(super) fn kills(&self) -> u32 {
        match self {
            Self::Never | Self::Ahead { .. } => 0,
            Self::Now { .. } | Self::Over => 1,
        }
    }
}
