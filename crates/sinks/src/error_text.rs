//! Turns the errors of client libraries into one bounded line of text for logs, the ledger and operators.
//!
//! Parts of such a text may come from the server, such as names in its certificate. Control characters are therefore
//! replaced, and the text is cut at [`MAX_CHARS`].

use std::error::Error;

const MAX_CHARS: usize = 500;

/// The error and its sources, outermost first. A source that the text already quotes is left out.
pub(crate) fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let cause = source.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        next = source.source();
    }
    one_line(&text)
}

/// The innermost source alone, for clients whose outer errors only say that the request failed.
pub(crate) fn root_cause(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = source.to_string();
        next = source.source();
    }
    one_line(&text)
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_CHARS).collect()
}
