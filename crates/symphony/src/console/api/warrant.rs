//! Who does it, and why: what the body of every action has.

use schemars::JsonSchema;
use serde::Deserialize;
use symphony_outbox::payment::operator;

use crate::console::access::Caller;
use crate::console::openapi;
use crate::console::problem::Problem;

/// The longest name that a person gives. With that of a token before it, it is not longer than the database takes.
const LONGEST_ACTOR: usize = 100;

/// Both are kept for ever, beside what was done.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Warrant {
    /// Who does it: a person's name. The name of the token is put before it; without tokens it must be given.
    #[serde(default)]
    #[schemars(length(max = 100), regex(pattern = openapi::NO_NUL))]
    pub(crate) actor: String,
    /// Why; for a resolution, the evidence.
    #[schemars(length(min = 1, max = 2000), regex(pattern = openapi::NOT_BLANK))]
    pub(crate) reason: String,
}

/// The same, complete.
#[derive(Debug)]
pub(crate) struct Signed {
    actor: String,
    reason: String,
}

impl Warrant {
    /// With the name under which the caller is known.
    pub(crate) fn signed(self, caller: &Caller) -> Result<Signed, Problem> {
        let (actor, reason) = (caller.actor(&self.actor), self.reason.trim().to_owned());
        if self.actor.chars().count() > LONGEST_ACTOR {
            return Err(Problem::bad(format!("actor has at most {LONGEST_ACTOR} characters: a name")));
        }
        if actor.is_empty() {
            return Err(Problem::bad("actor is empty: say who does it"));
        }
        if reason.is_empty() {
            return Err(Problem::bad("reason is empty: say why; it is kept with what was done"));
        }
        Ok(Signed { actor, reason })
    }
}

impl Signed {
    pub(crate) fn given(&self) -> operator::Warrant<'_> {
        operator::Warrant { actor: &self.actor, reason: &self.reason }
    }
}
