//! An event as CloudEvents 1.0 sees it: which attribute holds what, and how it travels in a header.
//!
//! It does not know which protocol carries it; each puts its own prefix before the names.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use symphony_relay::sink::Message;
use symphony_relay::trace;

/// The media type of the data of every event.
pub(crate) const CONTENT_TYPE: &str = "application/json";
/// What a header of text cannot hold as it is, by the HTTP binding; all that is not ASCII is encoded anyway.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

/// Every attribute but the type of the data, by its name.
///
/// The subject is the aggregate, and so is the key of the partition: the extension of that name lets a consumer keep
/// events in order without knowing what an aggregate is.
pub(crate) fn attributes(message: &Message) -> [(&'static str, String); 6] {
    [
        ("specversion", "1.0".to_owned()),
        ("id", message.id.clone()),
        ("source", message.source.clone()),
        ("type", message.event_type.clone()),
        ("subject", message.ordering_key()),
        ("partitionkey", message.ordering_key()),
    ]
}

/// The header that names the span on whose behalf an event leaves, where spans are drawn. No attribute: the extension of that name is
/// for the trace in which an event was made, which nobody knows here.
pub(crate) fn traceparent() -> Option<(&'static str, String)> {
    trace::current().map(|span| ("traceparent", span.to_string()))
}

/// What tells this event from every other: ids are unique within their source only.
pub(crate) fn unique_id(message: &Message) -> String {
    format!("{}#{}", message.source, message.id)
}

/// A value as a header of text can hold it.
pub(crate) fn header(value: &str) -> String {
    utf8_percent_encode(value, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_holds_what_a_line_of_ascii_can() {
        assert_eq!(header("order/42"), "order/42");
        assert_eq!(
            header("Euro \u{20ac} \u{1f600}\r\n\"100%\""),
            "Euro%20%E2%82%AC%20%F0%9F%98%80%0D%0A%22100%25%22"
        );
    }

    #[test]
    fn events_of_two_sources_are_two_events() {
        let event = |source: &str| Message {
            id: "1".to_owned(),
            source: source.to_owned(),
            event_type: "t".to_owned(),
            aggregate_type: "a".to_owned(),
            aggregate_id: "7".to_owned(),
            destination: "d".to_owned(),
            data: "{}".to_owned(),
        };
        assert_ne!(unique_id(&event("/shop")), unique_id(&event("/bank")));
    }
}
