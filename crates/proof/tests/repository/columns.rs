//! Markdown lines have at most 100 columns.

use crate::{files, is_document, lines, none};

const MAX_COLUMNS: usize = 100;

/// A line is too wide, and not because of a URL, which cannot be wrapped.
fn is_too_wide(line: &str) -> bool {
    let url = line.split_whitespace().find(|word| word.contains("://")).map_or(0, |url| url.chars().count());
    let columns = line.chars().count();
    columns > MAX_COLUMNS && columns - url > MAX_COLUMNS - 30
}

#[test]
fn markdown_lines_have_at_most_100_columns() {
    let documents = files(is_document);
    none("lines of more than 100 columns", &lines(&documents, |_, line| is_too_wide(line)));
}

#[test]
fn only_a_url_may_be_wider() {
    assert!(!is_too_wide(&"é".repeat(100)));
    assert!(is_too_wide(&"word ".repeat(21)));
    assert!(!is_too_wide(&format!("[River]: https://example.org/{}", "x".repeat(100))));
    assert!(is_too_wide(&format!("{} https://example.org", "word ".repeat(20))));
}
