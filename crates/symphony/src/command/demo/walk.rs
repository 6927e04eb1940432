//! The walk itself: numbered steps, each with what it shows, and whether that was so.

use crate::{
    failure::{Answer, Failure},
    output,
};

/// Steps so far, and those that were not as expected.
pub(super) struct Walk {
    step: u32,
    wrong: u32,
}

impl Walk {
    pub(super) fn new() -> Self {
        Self { step: 0, wrong: 0 }
    }

    /// A step that has happened.
    pub(super) fn say(&mut self, what: &str) -> Result<(), Failure> {
        self.show(true, what, "")
    }

    /// A step with something to see below it.
    pub(super) fn show(&mut self, as_expected: bool, what: &str, seen: &str) -> Result<(), Failure> {
        self.step += 1;
        let mut text = format!("{:>2}. {what}", self.step);
        if !as_expected {
            self.wrong += 1;
            text.push_str("\n    NOT AS EXPECTED");
        }
        for line in seen.lines() {
            text.push('\n');
            text.push_str(format!("    {line}").trim_end());
        }
        output::line(&text)
    }

    /// The last word.
    pub(super) fn end(self) -> Result<Answer, Failure> {
        if self.wrong == 0 {
            output::line(&format!("\nAll {} steps were as expected.", self.step))?;
            return Ok(Answer::Yes);
        }
        output::line(&format!("\n{} of {} steps were NOT as expected.", self.wrong, self.step))?;
        Ok(Answer::No)
    }
}
