//! Times, durations and numbers as text. Times are UTC.

use jiff::{SignedDuration, Timestamp};

/// A time as a page shows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Moment {
    /// RFC 3339, for the `datetime` attribute.
    pub(super) iso: String,
    /// To the second.
    pub(super) text: String,
    /// How long ago, or how soon.
    pub(super) ago: String,
}

impl Moment {
    pub(super) fn of(at: Timestamp) -> Self {
        let since = Timestamp::now().duration_since(at);
        let ago =
            if since.is_negative() { format!("in {}", span(-since)) } else { format!("{} ago", span(since)) };
        Self { iso: at.to_string(), text: clock(at), ago }
    }
}

/// To the second.
pub(super) fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A duration in its one or two largest units.
pub(super) fn span(length: SignedDuration) -> String {
    let (seconds, millis) = (length.as_secs(), length.subsec_millis());
    match seconds {
        0 => format!("{millis} ms"),
        1..=9 => format!("{seconds}.{} s", millis / 100),
        10..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A duration in seconds; "none" for zero.
pub(super) fn seconds(length: f64) -> String {
    if length <= 0.0 { "none".to_owned() } else { span(SignedDuration::from_secs_f64(length.min(1e9))) }
}

/// A duration in milliseconds; a dash for none.
pub(super) fn millis(length: Option<i64>) -> String {
    length.map_or_else(|| "–".to_owned(), |length| span(SignedDuration::from_millis(length)))
}

/// A number with thousands separators, and a plus if there may be more.
pub(super) fn number(count: i64, more: bool) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if more {
        text.push('+');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_spans_are_short() {
        assert_eq!((number(7, false), number(10_000, true)), ("7".to_owned(), "10,000+".to_owned()));
        assert_eq!(number(1_234_567, false), "1,234,567");
        for (millis, words) in [(40, "40 ms"), (1_250, "1.2 s"), (61_000, "61 s"), (3_600_000, "60 min")] {
            assert_eq!(span(SignedDuration::from_millis(millis)), words);
        }
        assert_eq!(span(SignedDuration::from_hours(25)), "25 h 0 min");
    }
}
