//! Prints results to stdout, as text or as one JSON document.

use std::io::{self, Write as _};

use serde::Serialize;
use symphony_console::sanitize::{json_for_terminal, plain, plain_lines};

use crate::failure::Failure;

/// The format of a result: text unless `--json` is given.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct OutputFormat {
    /// Print the result as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

impl OutputFormat {
    /// Prints a result: the value as JSON, or the text.
    pub(crate) fn print<T: Serialize>(self, value: &T, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json {
            let json = serde_json::to_string_pretty(value)
                .map_err(|error| Failure::new(format!("cannot print the result as JSON: {error}")))?;
            print_line(&json_for_terminal(&json))
        } else {
            print_line(&plain_lines(&text()))
        }
    }
}

/// Prints a text, with a line end unless it has one.
pub(crate) fn print_line(text: &str) -> Result<(), Failure> {
    try_print_line(text).map(drop)
}

/// Prints a text as [`print_line`] does. Returns false once the reader has closed the pipe.
pub(crate) fn try_print_line(text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("cannot print the result: {error}"))),
    }
}

/// Prints a remark about a result to stderr, so that stdout holds the result alone. A closed stderr is ignored.
pub(crate) fn print_note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", plain(text));
}
