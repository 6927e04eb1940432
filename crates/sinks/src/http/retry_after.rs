//! Parses the header `Retry-After`, in seconds or as a date.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// The delay of a response, at most `cap`. None if the header is missing, invalid or contradictory.
pub(super) fn delay(headers: &HeaderMap, now: SystemTime, cap: Duration) -> Option<Duration> {
    let mut values = headers.get_all(RETRY_AFTER).iter();
    let first = values.next()?;
    // Two different values contradict each other.
    if values.any(|other| other != first) {
        return None;
    }
    let text = first.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is a long delay.
        return Some(text.parse().map_or(cap, Duration::from_secs).min(cap));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    // Measured by the server's clock, if it sends Date: ours may be off.
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let from = date.and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now);
    Some(until.duration_since(from).unwrap_or_default().min(cap))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn parsed(retry_after: &'static str, date: Option<&'static str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_static(retry_after));
        if let Some(date) = date {
            headers.insert(DATE, HeaderValue::from_static(date));
        }
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        delay(&headers, now, HOUR)
    }

    #[test]
    fn seconds_and_dates_are_read() {
        assert_eq!(parsed("120", None), Some(Duration::from_secs(120)));
        assert_eq!(parsed("0", None), Some(Duration::ZERO));
        assert_eq!(parsed("Sun, 06 Nov 1994 08:50:07 GMT", None), Some(Duration::from_secs(30)));
    }

    #[test]
    fn a_date_is_taken_from_the_servers_own_clock() {
        let date = parsed("Sun, 06 Nov 1994 09:00:00 GMT", Some("Sun, 06 Nov 1994 08:59:50 GMT"));
        assert_eq!(date, Some(Duration::from_secs(10)));
    }

    #[test]
    fn a_delay_is_bounded_by_the_cap() {
        assert_eq!(parsed("86400", None), Some(HOUR));
        assert_eq!(parsed("99999999999999999999999999", None), Some(HOUR));
        assert_eq!(parsed("Sat, 06 Nov 2094 08:49:37 GMT", None), Some(HOUR));
    }

    #[test]
    fn a_date_in_the_past_means_now() {
        assert_eq!(parsed("Tue, 06 Nov 1984 08:49:37 GMT", None), Some(Duration::ZERO));
    }

    #[test]
    fn an_invalid_header_is_ignored() {
        for text in ["", "soon", "-1", "1.5", "+3", "5s"] {
            assert_eq!(parsed(text, None), None, "{text}");
        }
        assert_eq!(delay(&HeaderMap::new(), SystemTime::now(), HOUR), None);
    }
}
