//! The operator and the reason, which the body of every action must have.

use schemars::JsonSchema;
use serde::Deserialize;
use symphony_db::payment::operator;

use crate::access::Caller;
use crate::openapi;
use crate::problem::Problem;

/// The longest name of an operator. Together with the name of the token it fits the database's limit.
const MAX_ACTOR_CHARS: usize = 100;
/// The longest reason, blanks around it included: the database's limit.
const MAX_REASON_CHARS: usize = 2000;

/// The operator and the reason of an action. The audit log keeps both for ever.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditContext {
    /// The operator. The API puts the name of the token in front; required without tokens.
    #[serde(default)]
    #[schemars(length(max = 100), regex(pattern = openapi::NO_NUL))]
    pub(crate) actor: String,
    /// The reason.
    #[schemars(length(min = 1, max = 2000), regex(pattern = openapi::NOT_BLANK))]
    pub(crate) reason: String,
}

/// A complete audit context: the actor includes the name of the token.
#[derive(Debug)]
pub(crate) struct CheckedAuditContext {
    actor: String,
    reason: String,
}

impl AuditContext {
    /// Adds the name of the caller's token, and refuses an empty actor or reason.
    pub(crate) fn for_caller(self, caller: &Caller) -> Result<CheckedAuditContext, Problem> {
        let (actor, reason) = (caller.actor(&self.actor), self.reason.trim().to_owned());
        if self.actor.chars().count() > MAX_ACTOR_CHARS {
            return Err(Problem::bad_request(format!(
                "actor is longer than {MAX_ACTOR_CHARS} characters: give a name"
            )));
        }
        if self.reason.chars().count() > MAX_REASON_CHARS {
            return Err(Problem::bad_request(format!("reason is longer than {MAX_REASON_CHARS} characters")));
        }
        if actor.contains('\0') || reason.contains('\0') {
            return Err(Problem::bad_request("actor and reason must not contain a NUL character"));
        }
        if actor.is_empty() {
            return Err(Problem::bad_request("actor is empty: give the name of the operator"));
        }
        if reason.is_empty() {
            return Err(Problem::bad_request("reason is empty: give the reason; the audit log keeps it"));
        }
        Ok(CheckedAuditContext { actor, reason })
    }
}

impl CheckedAuditContext {
    pub(crate) fn as_db(&self) -> operator::AuditContext<'_> {
        operator::AuditContext { actor: &self.actor, reason: &self.reason }
    }
}
