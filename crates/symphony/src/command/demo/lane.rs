//! What the demo asks of a lane, whichever it is: settings for the relayers, a look while it is carried, an audit at the end.
//!
//! What a lane carries is written by [`load`](super::load), in the transaction of the order that it belongs to; all
//! lanes together are [`Lanes`](super::lanes::Lanes).

use serde::Serialize;

use crate::failure::Failure;

/// A lane of the demo, with whatever it needs to be carried somewhere.
pub(super) trait Lane {
    /// What its audit comes to.
    type Verdict: Verdict;

    /// What a relayer must be told to carry it: sections of its settings.
    fn settings(&self) -> String;

    /// Counts.
    async fn look(&mut self) -> Result<Look, Failure>;

    /// A relayer was killed. What it held comes back by itself; where nobody would want to watch how long that takes, its time is moved,
    /// and how much was freed is said in a few words.
    async fn died(&mut self, worker: &str) -> Result<Option<String>, Failure>;

    /// Compares what was committed with what has arrived, once nothing is on its way any more.
    async fn audit(&mut self) -> Result<Self::Verdict, Failure>;
}

/// A name, a number and what there is to say about it.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) number: String,
    pub(super) more: String,
}

impl Row {
    pub(super) fn new(name: &'static str, number: impl ToString, more: impl Into<String>) -> Self {
        Self { name, number: number.to_string(), more: more.into() }
    }
}

/// How far a lane is, at one moment.
#[derive(Default)]
pub(super) struct Look {
    /// What is on its way.
    pub(super) open: i64,
    /// For a drawing.
    pub(super) rows: Vec<Row>,
    /// The same for one line.
    pub(super) words: String,
}

/// What an audit comes to: as JSON by itself, in words by its part.
pub(super) trait Verdict: Serialize {
    fn holds(&self) -> bool;

    fn part(&self) -> Part;
}

/// What an audit comes to, in words.
pub(super) struct Part {
    /// What was compared with what.
    pub(super) title: &'static str,
    pub(super) rows: Vec<Row>,
    /// What must not be.
    pub(super) findings: Vec<String>,
    /// What a person has to look at.
    pub(super) notes: Vec<String>,
    /// The result in a few words.
    pub(super) result: String,
}
