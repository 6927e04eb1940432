//! When a rail wants to be asked again: `Retry-After` in seconds or as a date.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// The delay that an answer asks for, at most `cap`. What cannot be read was not said.
pub(super) fn delay(headers: &HeaderMap, now: SystemTime, cap: Duration) -> Option<Duration> {
    let mut said = headers.get_all(RETRY_AFTER).iter();
    let first = said.next()?;
    // Two that differ say nothing.
    if said.any(|other| other != first) {
        return None;
    }
    let text = first.to_str().ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // So many digits that they do not fit are still "very late".
        return Some(text.parse().map_or(cap, Duration::from_secs).min(cap));
    }
    let until = httpdate::parse_http_date(text).ok()?;
    // By the server's own clock where it tells it: ours may be off.
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    let from = date.and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or(now);
    Some(until.duration_since(from).unwrap_or_default().min(cap))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn said(retry_after: &'static str, date: Option<&'static str>) -> Option<Duration> {
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
        assert_eq!(said("120", None), Some(Duration::from_secs(120)));
        assert_eq!(said("0", None), Some(Duration::ZERO));
        assert_eq!(said("Sun, 06 Nov 1994 08:50:07 GMT", None), Some(Duration::from_secs(30)));
    }

    #[test]
    fn a_date_is_taken_from_the_servers_own_clock() {
        let date = said("Sun, 06 Nov 1994 09:00:00 GMT", Some("Sun, 06 Nov 1994 08:59:50 GMT"));
        assert_eq!(date, Some(Duration::from_secs(10)));
    }

    #[test]
    fn a_delay_is_bounded_by_the_cap() {
        assert_eq!(said("86400", None), Some(HOUR));
        assert_eq!(said("99999999999999999999999999", None), Some(HOUR));
        assert_eq!(said("Sat, 06 Nov 2094 08:49:37 GMT", None), Some(HOUR));
    }

    #[test]
    fn a_date_in_the_past_means_now() {
        assert_eq!(said("Tue, 06 Nov 1984 08:49:37 GMT", None), Some(Duration::ZERO));
    }

    #[test]
    fn what_cannot_be_read_was_not_said() {
        for text in ["", "soon", "-1", "1.5", "+3", "5s"] {
            assert_eq!(said(text, None), None, "{text}");
        }
        assert_eq!(delay(&HeaderMap::new(), SystemTime::now(), HOUR), None);
    }
}
