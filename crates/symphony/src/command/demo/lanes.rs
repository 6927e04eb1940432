//! All lanes of the demo, as one.

use serde::Serialize;

use super::{
    environment::DemoEnvironment,
    events::{self, Events},
    lane::{AuditResult as _, AuditSection, Lane, LaneProgress},
    metadata::{self, Metadata},
    payments::{self, Payments},
};
use crate::failure::Failure;

/// All lanes, with their destinations.
pub(super) struct Lanes {
    pub(super) payments: Payments,
    pub(super) events: Events,
    pub(super) metadata: Metadata,
}

/// The results of their audits.
#[derive(Serialize)]
pub(super) struct LaneAudits {
    #[serde(flatten)]
    payments: payments::PaymentAudit,
    events: events::EventAudit,
    metadata: metadata::MetadataAudit,
}

impl Lanes {
    pub(super) async fn open(environment: &DemoEnvironment, faults: &str, seed: u64) -> Result<Self, Failure> {
        Ok(Self {
            payments: Payments::open(environment, faults, seed).await?,
            events: Events::open(environment).await?,
            metadata: Metadata::open(environment).await?,
        })
    }

    pub(super) fn settings(&self) -> String {
        [self.payments.settings(), self.events.settings(), self.metadata.settings()].concat()
    }

    pub(super) async fn progress(&mut self) -> Result<Vec<LaneProgress>, Failure> {
        Ok(vec![self.payments.progress().await?, self.events.progress().await?, self.metadata.progress().await?])
    }

    /// What each lane did about the kill, to be appended to its message.
    pub(super) async fn relayer_killed(&mut self, worker: &str) -> Result<String, Failure> {
        let freed = [
            self.payments.relayer_killed(worker).await?,
            self.events.relayer_killed(worker).await?,
            self.metadata.relayer_killed(worker).await?,
        ];
        Ok(freed.into_iter().flatten().map(|words| format!("; {words}")).collect())
    }

    pub(super) async fn audit(&mut self) -> Result<LaneAudits, Failure> {
        Ok(LaneAudits {
            payments: self.payments.audit().await?,
            events: self.events.audit().await?,
            metadata: self.metadata.audit().await?,
        })
    }
}

impl LaneAudits {
    pub(super) fn holds(&self) -> bool {
        self.payments.holds() && self.events.holds() && self.metadata.holds()
    }

    pub(super) fn sections(&self) -> Vec<AuditSection> {
        vec![self.payments.section(), self.events.section(), self.metadata.section()]
    }
}
