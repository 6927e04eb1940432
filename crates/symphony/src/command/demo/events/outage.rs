//! The outage of one destination, in the middle of the run.

use std::time::Duration;

use super::destination::Destination;
use crate::failure::Failure;

/// How long the destination is down: long enough that dispatches fail.
const OUTAGE_LENGTH: Duration = Duration::from_secs(1);

/// The state of the outage. Times count from the start of the load.
pub(super) enum Outage {
    /// No outage is planned.
    None,
    /// It starts after this time.
    Planned { after: Duration },
    /// The destination is down until this time.
    Down { until: Duration },
    /// The destination was killed and restarted.
    Over,
}

impl Outage {
    /// Kills or restarts the destination when it is time, and describes what it did.
    pub(super) async fn advance(
        &mut self,
        destination: &mut Destination,
        elapsed: Duration,
    ) -> Result<Option<String>, Failure> {
        match *self {
            Self::Planned { after } if elapsed == Duration::MAX || elapsed < after => Ok(None),
            Self::Planned { .. } => {
                destination.kill().await?;
                *self = Self::Down { until: elapsed + OUTAGE_LENGTH };
                Ok(Some(format!("broker killed: kill -9 {}", destination.name())))
            }
            Self::Down { until } if elapsed >= until => {
                destination.restart().await?;
                *self = Self::Over;
                Ok(Some(format!("{} restarted", destination.name())))
            }
            Self::Down { .. } | Self::None | Self::Over => Ok(None),
        }
    }

    /// How many destinations were killed.
    pub(super) fn kills(&self) -> u32 {
        match self {
            Self::None | Self::Planned { .. } => 0,
            Self::Down { .. } | Self::Over => 1,
        }
    }
}
