//! Redacts arguments that may hold a password, so that error messages can quote the rest.

use std::ffi::OsString;

/// Replaces the text that is not shown.
const REDACTED: &str = "***";

/// Redacts an argument that may be a database URL, even a malformed one: any text with `://` or `password`.
///
/// The name of an option and the scheme of a URL stay, so that the user sees which argument it is.
pub(crate) fn redacted(argument: OsString) -> OsString {
    let text = argument.to_string_lossy();
    if !text.contains("://") && !text.to_ascii_lowercase().contains("password") {
        return argument;
    }
    if is_option_name(&text) {
        return argument;
    }
    match text.split_once('=') {
        Some((name, value)) if is_option_name(name) => format!("{name}={}", redact_value(value)).into(),
        _ => redact_value(&text).into(),
    }
}

/// Whether this is the name of an option and nothing else, such as `--password`.
fn is_option_name(text: &str) -> bool {
    text.strip_prefix("--").is_some_and(|name| name.chars().all(|c| c.is_ascii_alphabetic() || c == '-'))
}

fn redact_value(text: &str) -> String {
    match text.split_once("://") {
        Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphabetic()) => format!("{scheme}://{REDACTED}"),
        _ => REDACTED.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_hold_a_password_is_not_shown() {
        for (given, shown) in [
            ("status", "status"),
            ("--reason=the bank is down", "--reason=the bank is down"),
            ("postgres://me:s3 cret@host/db", "postgres://***"),
            ("--limit=postgres://me:s3 cret@host/db", "--limit=postgres://***"),
            ("host=h password = s3cret", "***"),
            ("--limit=host=h PASSWORD = s3cret", "--limit=***"),
            ("me:s3cret://host", "***"),
            ("--me:s3cret://host", "***"),
            ("--password", "--password"),
            ("--password=s3cret", "--password=***"),
        ] {
            assert_eq!(redacted(given.into()), OsString::from(shown), "{given}");
        }
    }
}
