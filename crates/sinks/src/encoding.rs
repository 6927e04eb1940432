//! Percent-encodes text for the places where this crate puts it: URL paths, HTTP headers and Redis keys.
//!
//! Each set of characters is declared here once. A set decides whether two different values can be mistaken for each
//! other, so none may shrink without a look at every use.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
pub(crate) use symphony_db::connect::percent_encode as url_segment;

/// What the HTTP binding of CloudEvents encodes in a header value. Non-ASCII characters are always encoded.
const HEADER_UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');
/// What separates the parts of a Redis key, so that no two entities share a key.
const KEY_SEPARATORS: &AsciiSet = &CONTROLS.add(b':').add(b'%');

/// The value of a text header.
pub(crate) fn header_value(text: &str) -> String {
    utf8_percent_encode(text, HEADER_UNSAFE).to_string()
}

/// One part of a Redis key that has more parts behind it.
pub(crate) fn key_part(text: &str) -> String {
    utf8_percent_encode(text, KEY_SEPARATORS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_value_is_printable_ascii_without_spaces_and_quotes() {
        assert_eq!(header_value("order/42"), "order/42");
        assert_eq!(
            header_value("Euro \u{20ac} \u{1f600}\r\n\"100%\""),
            "Euro%20%E2%82%AC%20%F0%9F%98%80%0D%0A%22100%25%22"
        );
    }

    #[test]
    fn a_url_segment_keeps_only_unreserved_characters() {
        assert_eq!(url_segment("aZ09-_.~"), "aZ09-_.~");
        assert_eq!(url_segment("a/b?c#d e:f"), "a%2Fb%3Fc%23d%20e%3Af");
    }

    #[test]
    fn a_key_part_keeps_everything_but_separators_and_controls() {
        assert_eq!(key_part("a:b%c\n/d"), "a%3Ab%25c%0A/d");
    }
}
