//! The bell of a lane whose database is PostgreSQL: hung when it is first armed, and again after it was lost.

use std::sync::Arc;
use std::time::Duration;

use symphony_outbox::bell::{self, Channel};
use symphony_outbox::connect::Target;
use tokio::time::{Instant, sleep_until};

use crate::bell::Bell;
use crate::lane::LaneError;
use crate::session_pool::with_cause;

/// How often to make sure that the session that hears is still there.
const CHECK: Duration = Duration::from_secs(30);

/// Rings when work is committed on a channel.
#[derive(Debug)]
pub struct Ringer {
    target: Arc<Target>,
    channel: Channel,
    bell: Option<bell::Bell>,
    next_check: Instant,
}

impl Ringer {
    /// A bell on this channel. The address must lead to PostgreSQL itself, not to a pooler.
    #[must_use]
    pub fn new(target: Arc<Target>, channel: Channel) -> Self {
        Self { target, channel, bell: None, next_check: Instant::now() }
    }

    fn lost(&mut self, error: &bell::Error) -> LaneError {
        self.bell = None;
        match error {
            // Nobody removes a pooler within seconds.
            bell::Error::Deaf => LaneError::Refused(error.to_string()),
            bell::Error::Connect(_) | bell::Error::Refused(_) | bell::Error::Lost => {
                LaneError::Unavailable(with_cause(error))
            }
        }
    }
}

impl Bell for Ringer {
    async fn arm(&mut self) -> Result<(), LaneError> {
        let bell = match &mut self.bell {
            Some(bell) => bell,
            None => {
                let hung = bell::Bell::hang(&self.target, self.channel).await;
                self.next_check = Instant::now() + CHECK;
                match hung {
                    Ok(bell) => self.bell.insert(bell),
                    Err(error) => return Err(self.lost(&error)),
                }
            }
        };
        let armed = bell.arm().await;
        armed.map_err(|error| self.lost(&error))
    }

    async fn disarm(&mut self) -> Result<(), LaneError> {
        if let Some(bell) = &mut self.bell {
            bell.disarm();
        }
        Ok(())
    }

    async fn rung(&mut self) -> Result<(), LaneError> {
        let Some(bell) = &mut self.bell else { return std::future::pending().await };
        let rung = loop {
            tokio::select! {
                rung = bell.rung() => break rung,
                () = sleep_until(self.next_check) => match bell.check().await {
                    Ok(()) => self.next_check = Instant::now() + CHECK,
                    Err(lost) => break Err(lost),
                },
            }
        };
        rung.map_err(|error| self.lost(&error))
    }
}
