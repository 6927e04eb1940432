//! The arguments as they may be shown: without what may hold a password.

use std::ffi::OsString;

/// What stands in the place of what is not shown.
const BLOT: &str = "***";

/// Blots what may be the address of a database, however badly it is written: whatever holds `://` or `password`.
///
/// The name of an option stays, and the scheme of a URL, for a person to know which argument it is.
pub(crate) fn blotted(argument: OsString) -> OsString {
    let text = argument.to_string_lossy();
    if !text.contains("://") && !text.to_ascii_lowercase().contains("password") {
        return argument;
    }
    if is_option(&text) {
        return argument;
    }
    match text.split_once('=') {
        Some((name, value)) if is_option(name) => format!("{name}={}", blot(value)).into(),
        _ => blot(&text).into(),
    }
}

/// Whether this is the name of an option and nothing else, such as `--password`.
fn is_option(text: &str) -> bool {
    text.strip_prefix("--").is_some_and(|name| name.chars().all(|c| c.is_ascii_alphabetic() || c == '-'))
}

fn blot(text: &str) -> String {
    match text.split_once("://") {
        Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphabetic()) => format!("{scheme}://{BLOT}"),
        _ => BLOT.to_owned(),
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
            assert_eq!(blotted(given.into()), OsString::from(shown), "{given}");
        }
    }
}
