//! What people and dashboards may see, read from the views.
//!
//! For a login with the role `symphony_readonly`, `symphony_auditor` or `symphony_operator`. Everything here can be
//! printed and serialised: no payload and no lease token is read at all.

mod dead_letters;
mod operations;
mod rails;
mod status;
mod story;

pub use dead_letters::{DeadLetter, dead_letters};
pub use operations::{Operation, operations};
pub use rails::rails;
pub use status::{Pending, RailStatus, Status, pending, status};
pub use story::{Event, story, story_of_instruction};
