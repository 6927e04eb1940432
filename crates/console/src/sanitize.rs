//! Replaces control characters, bidirectional overrides and invisible characters in stored text. The CLI and the
//! dashboard use it.

use std::fmt::Write as _;

/// Stored text for one line: each unsafe character becomes U+FFFD.
pub fn plain(text: &str) -> String {
    replace_unsafe(text, &[])
}

/// The same for text of several lines.
pub fn plain_lines(text: &str) -> String {
    replace_unsafe(text, &['\n'])
}

/// The same for a page or a file: line ends and tabs stay.
pub fn plain_layout(text: &str) -> String {
    replace_unsafe(text, &['\n', '\t', '\r'])
}

fn replace_unsafe(text: &str, kept: &[char]) -> String {
    text.chars()
        .map(|c| if is_unsafe(c) && !kept.contains(&c) { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// JSON in which unsafe characters are written as escapes: a parser reads the same value.
pub fn json_for_terminal(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        // Outside of strings JSON has only spaces and line ends.
        if is_unsafe(c) && c != '\n' {
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

/// Whether a character could control a terminal (C0, C1), reorder text, break a line or hide. The joiners U+200C and
/// U+200D are allowed: some scripts need them.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_a_rail_cannot_control_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\nc\u{9b}"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(plain_lines("a\u{1b}[2Jb\nc\u{9b}"), "a\u{fffd}[2Jb\nc\u{fffd}");
        assert_eq!(plain_layout("a\tb\r\n\u{1b}"), "a\tb\r\n\u{fffd}");
    }

    #[test]
    fn text_of_a_producer_cannot_reorder_a_line_or_hide_in_it() {
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
    fn json_keeps_every_character_and_escapes_unsafe_ones() {
        let given = "a\u{202e}b\u{9b}c\u{e0041}d\u{1b}e\"f\n";
        let json = json_for_terminal(&serde_json::to_string_pretty(&[given]).unwrap());
        assert!(json.is_ascii(), "{json}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [given]);
    }
}
