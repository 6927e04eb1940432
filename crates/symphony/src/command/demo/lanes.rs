//! All lanes of the demo, and what each of them is asked.

use serde::Serialize;

use super::{
    events::{self, Events},
    lane::{Lane, Look, Part, Verdict as _},
    metadata::{self, Metadata},
    payments::{self, Payments},
    stage::Stage,
};
use crate::failure::Failure;

/// All of them, each with where it leads to.
pub(super) struct Lanes {
    pub(super) payments: Payments,
    pub(super) events: Events,
    pub(super) metadata: Metadata,
}

/// What their audits come to.
#[derive(Serialize)]
pub(super) struct Verdicts {
    #[serde(flatten)]
    payments: payments::Verdict,
    events: events::Verdict,
    metadata: metadata::Verdict,
}

impl Lanes {
    pub(super) async fn open(stage: &Stage, faults: &str, seed: u64) -> Result<Self, Failure> {
        Ok(Self {
            payments: Payments::open(stage, faults, seed).await?,
            events: Events::open(stage).await?,
            metadata: Metadata::open(stage).await?,
        })
    }

    pub(super) fn settings(&self) -> String {
        [self.payments.settings(), self.events.settings(), self.metadata.settings()].concat()
    }

    pub(super) async fn look(&mut self) -> Result<Vec<Look>, Failure> {
        Ok(vec![self.payments.look().await?, self.events.look().await?, self.metadata.look().await?])
    }

    /// What was freed, to be added to what is said of the kill.
    pub(super) async fn died(&mut self, worker: &str) -> Result<String, Failure> {
        let freed = [
            self.payments.died(worker).await?,
            self.events.died(worker).await?,
            self.metadata.died(worker).await?,
        ];
        Ok(freed.into_iter().flatten().map(|words| format!("; {words}")).collect())
    }

    pub(super) async fn audit(&mut self) -> Result<Verdicts, Failure> {
        Ok(Verdicts {
            payments: self.payments.audit().await?,
            events: self.events.audit().await?,
            metadata: self.metadata.audit().await?,
        })
    }
}

impl Verdicts {
    pub(super) fn holds(&self) -> bool {
        self.payments.holds() && self.events.holds() && self.metadata.holds()
    }

    pub(super) fn parts(&self) -> Vec<Part> {
        vec![self.payments.part(), self.events.part(), self.metadata.part()]
    }
}
