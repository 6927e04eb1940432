//! What people and dashboards may see, read from the views and from the functions that look without changing.
//!
//! For a login with the role `symphony_readonly`, `symphony_auditor` or `symphony_operator`; a payload is for the
//! auditor alone; rail policies and totals are for `symphony_executor` too. Everything but a payload can be printed and serialised: no lease token is read at all.

mod backlog;
mod dead_letters;
mod leases;
mod operations;
mod outboxes;
mod participants;
mod payload;
mod pulse;
mod rails;
mod status;
mod story;

pub use backlog::{Backlog, RailBacklog, backlog};
pub use dead_letters::{
    DeadLetter, DeadLetterCount, DeadLetterFilter, RailDeadLetters, count_dead_letters, dead_letters,
    page_of_dead_letters,
};
pub use leases::{WorkerLeases, leases};
pub use operations::{
    Operation, audit_export_end, count_operations, log_of_operations, operations, operations_between,
};
pub use outboxes::{Outbox, Page, Search, outbox, search};
pub use participants::{Participant, participants};
pub use payload::payload;
pub use pulse::{Part, Pulse, RailPulse, WorkerPulse, pulse};
pub use rails::rails;
pub use status::{Pending, RailStatus, Status, pending, status};
pub use story::{Event, story, story_of_instruction};
