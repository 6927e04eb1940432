//! How results are printed: to stdout, for people or as one JSON document.

use std::io::{self, Write as _};

use serde::Serialize;

use crate::failure::Failure;

/// For whom.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Form {
    /// Print the result as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

impl Form {
    /// Prints a result: the value as JSON, or the text for people.
    pub(crate) fn print<T: Serialize>(self, value: &T, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json {
            let json = serde_json::to_string_pretty(value)
                .map_err(|error| Failure::no(format!("the result cannot be printed as JSON: {error}")))?;
            line(&json)
        } else {
            line(&text())
        }
    }
}

/// Prints a text, and a line end where it has none.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    line_is_read(text).map(drop)
}

/// The same; whether there is still somebody who reads.
pub(crate) fn line_is_read(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::no(format!("the result could not be printed: {error}"))),
    }
}

/// Words of others on one line, without what would steer a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The same for a text of several lines, which stay lines.
pub(crate) fn plain_lines(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rail_said_cannot_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\u{9b}"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(plain_lines("a\u{1b}[2Jb\nc\u{9b}"), "a\u{fffd}[2Jb\nc\u{fffd}");
    }
}
