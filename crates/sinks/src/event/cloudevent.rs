//! Maps an event to the attributes of CloudEvents 1.0. Each protocol puts its own prefix before their names.

use symphony_relay::sink::Message;
use symphony_relay::trace;

/// The media type of the data of every event.
pub(crate) const CONTENT_TYPE: &str = "application/json";

/// Every attribute but `datacontenttype`, by its name.
///
/// Both `subject` and `partitionkey` are the aggregate. The extension `partitionkey` lets a consumer keep events in
/// order without knowing what an aggregate is.
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

/// The header `traceparent` with the span of this dispatch, if traces are on. It is no CloudEvents attribute: the
/// extension of that name means the trace that created the event, which the relayer does not know.
pub(crate) fn traceparent() -> Option<(&'static str, String)> {
    trace::current().map(|span| ("traceparent", span.to_string()))
}

/// A deduplication id. The event's id alone is unique only within its source.
pub(crate) fn unique_id(message: &Message) -> String {
    format!("{}#{}", message.source, message.id)
}

#[cfg(test)]
mod tests {
    use super::*;

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
