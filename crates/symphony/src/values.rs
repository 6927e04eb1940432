//! Parses values of arguments that several commands take. An error says what to write, or where to find it.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use symphony_db::OutboxId;

/// A time with its offset from UTC, or a date, which is its midnight in UTC.
pub(crate) fn time(text: &str) -> Result<Timestamp, String> {
    let midnight = || text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    // A civil time would parse as the date that it begins with.
    let is_date = text.len() == "2026-05-01".len();
    text.parse().ok().or_else(|| is_date.then(midnight)?).ok_or_else(|| {
        "not a time; write a date such as 2026-05-01, which begins at midnight UTC, or a time with its offset such as \
         2026-05-01T09:30:00Z"
            .to_owned()
    })
}

/// The outbox id of a dead letter.
pub(crate) fn dead_letter_id(text: &str) -> Result<OutboxId, &'static str> {
    text.parse().map_err(|_| "not an outbox id; find one with: symphony dlq list")
}

/// The outbox id of a payment.
pub(crate) fn outbox_id(text: &str) -> Result<OutboxId, &'static str> {
    text.parse().map_err(|_| "not an outbox id; find one with: symphony inspect INSTRUCTION")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_be_a_date_and_has_an_offset_otherwise() {
        for (text, expected) in [
            ("2026-05-01", "2026-05-01T00:00:00Z"),
            ("2026-05-01T00:00Z", "2026-05-01T00:00:00Z"),
            ("2026-05-01T10:30:00+02:00", "2026-05-01T08:30:00Z"),
            ("2026-05-01 10:30:00Z", "2026-05-01T10:30:00Z"),
        ] {
            assert_eq!(time(text).unwrap().to_string(), expected, "{text}");
        }
        for wrong in ["", "yesterday", "2026-05-01T10:30:00", "2026-02-30", "2026-5-1", "01.05.2026", "1714550400"]
        {
            assert!(time(wrong).unwrap_err().contains("2026-05-01T09:30:00Z"), "{wrong}");
        }
    }
}
