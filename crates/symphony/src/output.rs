//! How results are printed: to stdout, for people or as one JSON document.

use std::fmt::Write as _;
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
            line(&json_for_terminal(&json))
        } else {
            line(&plain_lines(&text()))
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

/// Tells the reader of a result something about it, on stderr: the result itself stays as it is. Who has closed stderr is not told.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", plain(text));
}

/// Text of others on one line, without what would steer a terminal, reorder the line or hide in it.
pub(crate) fn plain(text: &str) -> String {
    cleaned(text, &[])
}

/// The same for a text of several lines, which stay lines.
pub(crate) fn plain_lines(text: &str) -> String {
    cleaned(text, &['\n'])
}

/// The same for what has a layout of its own, as a page or a file of records.
pub(crate) fn plain_layout(text: &str) -> String {
    cleaned(text, &['\n', '\t', '\r'])
}

/// What is taken out is seen to be missing.
fn cleaned(text: &str, kept: &[char]) -> String {
    text.chars()
        .map(|c| if is_deceptive(c) && !kept.contains(&c) { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// JSON text in which such characters are written as escapes: a parser reads the same, and a terminal shows it as it is.
pub(crate) fn json_for_terminal(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        // Outside of its strings JSON has spaces and line ends alone.
        if is_deceptive(c) && c != '\n' {
            for unit in c.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

/// Whether a character is not what a reader would see: controls of terminals (C0, C1), of the direction of writing, line and
/// paragraph separators, and characters without a shape. The joiners U+200C and U+200D stay: some scripts cannot be written without.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rail_said_cannot_steer_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\u{9b}"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(plain_lines("a\u{1b}[2Jb\nc\u{9b}"), "a\u{fffd}[2Jb\nc\u{fffd}");
        assert_eq!(plain_layout("a\tb\r\n\u{1b}"), "a\tb\r\n\u{fffd}");
    }

    #[test]
    fn what_a_producer_wrote_cannot_reorder_a_line_or_hide_in_it() {
        for c in ['\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{200e}', '\u{200f}', '\u{61c}', '\u{2028}'] {
            assert_eq!(plain(&format!("a{c}b")), "a\u{fffd}b", "U+{:04X}", u32::from(c));
        }
        for c in ['\u{200b}', '\u{feff}', '\u{2060}', '\u{e0041}', '\u{7f}', '\u{85}'] {
            assert_eq!(plain(&format!("a{c}b")), "a\u{fffd}b", "U+{:04X}", u32::from(c));
        }
        let kept = "Zoë, Ünal, \u{5d0}\u{5d1}, \u{645}\u{6cc}\u{200c}\u{62e}, 👩\u{200d}👧";
        assert_eq!(plain(kept), kept);
    }

    #[test]
    fn json_keeps_every_character_and_shows_none_that_deceives() {
        let given = "a\u{202e}b\u{9b}c\u{e0041}d\u{1b}e\"f\n";
        let json = json_for_terminal(&serde_json::to_string_pretty(&[given]).unwrap());
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [given]);
    }
}
