//! Broken protocols: each changes one rule, and the checker must find what it breaks.

use crate::property;
use crate::scenario::{self, Scenario};

/// One changed rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    NoToken,
    AttemptNumberAsToken,
    RepairWithoutRecheck,
    ResendOnUnknown,
    EpochIgnored,
    EpochOfRecord,
    EndpointIgnored,
    LastEndpointOnly,
    CompletionAfterExpiry,
    ClaimWithoutDurableCommit,
    ForgottenKeyTrusted,
    SendAfterExpiry,
    TakeoverWithoutLedgerRow,
    ReleaseAfterSend,
    RefusalOfRepeatTrusted,
    OrderIgnored,
    ExpiredLeaseKept,
    ProbeWithFailedRow,
    AcceptanceIsUnknown,
}

/// A variant, where the checker finds it, and what it breaks there. Its counterexample is in a file of its name.
pub(crate) struct Broken {
    pub(crate) variant: Variant,
    pub(crate) name: &'static str,
    /// The changed rule.
    pub(crate) rule: &'static str,
    pub(crate) scenario: Scenario,
    /// The property that it violates.
    pub(crate) property: &'static str,
}

/// Every variant.
pub(crate) fn all() -> Vec<Broken> {
    use Variant as V;
    let broken = |variant, name, rule, scenario, property| Broken { variant, name, rule, scenario, property };
    vec![
        broken(
            V::NoToken,
            "no-token",
            "any worker may complete a leased row",
            scenario::forgetful(),
            property::EXECUTED_ONCE,
        ),
        broken(
            V::AttemptNumberAsToken,
            "attempt-number-as-token",
            "the attempt number serves as the lease token",
            scenario::failover(),
            property::EXECUTED_ONCE,
        ),
        broken(
            V::RepairWithoutRecheck,
            "repair-without-recheck",
            "a repair does not read the row again under its lock",
            scenario::repair(),
            property::LEASE_ACCOUNTED,
        ),
        broken(
            V::ResendOnUnknown,
            "resend-on-unknown",
            "an unknown outcome is sent again without an inquiry",
            scenario::forgetful(),
            property::EXECUTED_ONCE,
        ),
        broken(
            V::EpochIgnored,
            "epoch-ignored",
            "a row of an earlier epoch counts as never sent",
            scenario::failover(),
            property::EXECUTED_ONCE,
        ),
        broken(
            V::EpochOfRecord,
            "epoch-of-record",
            "an attempt counts for the epoch of its record, not of its lease",
            scenario::failover(),
            property::EXECUTED_ONCE,
        ),
        broken(
            V::EndpointIgnored,
            "endpoint-ignored",
            "an inquiry goes to another endpoint than the attempt",
            scenario::moved_endpoint(),
            property::EXECUTED_AT_ONE_ENDPOINT,
        ),
        broken(
            V::LastEndpointOnly,
            "last-endpoint-only",
            "of attempts with unknown outcomes only the last endpoint counts",
            scenario::moved_endpoint(),
            property::EXECUTED_AT_ONE_ENDPOINT,
        ),
        broken(
            V::CompletionAfterExpiry,
            "completion-after-expiry",
            "a completion is accepted after the lease has expired",
            scenario::remembering(),
            property::RESULT_UNDER_LEASE,
        ),
        broken(
            V::ClaimWithoutDurableCommit,
            "claim-without-durable-commit",
            "a claim is granted before its commit is durable",
            scenario::synchronous(),
            property::LEASE_NEVER_LOST,
        ),
        broken(
            V::ForgottenKeyTrusted,
            "forgotten-key-trusted",
            "a bank that may have forgotten the key is believed: never seen",
            scenario::forgetful(),
            property::EXECUTED_ONCE,
        ),
        broken(
            V::SendAfterExpiry,
            "send-after-expiry",
            "a frozen worker sends although its lease is over",
            scenario::forgetful(),
            property::EXECUTED_ONCE,
        ),
        broken(
            V::TakeoverWithoutLedgerRow,
            "takeover-without-ledger-row",
            "a takeover of an expired lease writes no ledger row",
            scenario::forgetful(),
            property::EXECUTED_ONCE,
        ),
        broken(
            V::ReleaseAfterSend,
            "release-after-send",
            "a lease is released although its dispatch has begun",
            scenario::forgetful(),
            property::EXECUTED_ONCE,
        ),
        broken(
            V::RefusalOfRepeatTrusted,
            "refusal-of-repeat-trusted",
            "a refused repeat counts as a refused payment",
            scenario::without_inquiry(),
            property::NOT_PAID_IS_TRUE,
        ),
        broken(
            V::OrderIgnored,
            "order-ignored",
            "a claim takes a row behind a pending one",
            scenario::ordered(),
            property::IN_ORDER,
        ),
        broken(
            V::ExpiredLeaseKept,
            "expired-lease-kept",
            "an expired lease keeps its row",
            scenario::remembering(),
            property::EVERY_ROW_ENDS,
        ),
        broken(
            V::ProbeWithFailedRow,
            "probe-with-failed-row",
            "a half-open breaker probes with any due row",
            scenario::breaker(),
            property::PROBE_NOT_WASTED,
        ),
        broken(
            V::AcceptanceIsUnknown,
            "acceptance-is-unknown",
            "an accepted payment is sent again, as one of unknown outcome",
            scenario::accepting(),
            property::ACCEPTED_NOT_SENT,
        ),
    ]
}
