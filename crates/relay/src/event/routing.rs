//! Routing of events: the first matching route decides the sink and the destination.
//!
//! A route matches an aggregate type and an event type, each exactly or `*` for any. Its destination is a template
//! with the placeholders `{aggregate_type}`, `{aggregate_id}` and `{event_type}`.

use symphony_db::event::Event;

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The aggregate type, or `*`.
    pub aggregate_type: String,
    /// The event type, or `*`.
    pub event_type: String,
    /// The name of the sink.
    pub sink: String,
    destination: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    AggregateType,
    AggregateId,
    EventType,
}

/// Why a destination template is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// An unknown placeholder.
    #[error("unknown placeholder {{{0}}}: use {{aggregate_type}}, {{aggregate_id}} or {{event_type}}")]
    UnknownPlaceholder(String),
    /// An unmatched brace.
    #[error("the template has an unmatched brace")]
    Unbalanced,
    /// An empty template.
    #[error("the template is empty")]
    Empty,
}

/// The routes in order: the first that matches wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// Routes in this order.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// The routes, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.iter()
    }

    /// The sinks that the routes name.
    pub fn sinks(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|route| route.sink.as_str())
    }

    /// The sink and the destination of an event.
    pub(super) fn resolve(&self, event: &Event) -> Option<(String, String)> {
        let matches = |pattern: &str, value: &str| pattern == "*" || pattern == value;
        let route = self.0.iter().find(|route| {
            matches(&route.aggregate_type, &event.aggregate_type) && matches(&route.event_type, &event.event_type)
        })?;
        Some((route.sink.clone(), route.fill(event)))
    }
}

impl Route {
    /// A route to this destination.
    ///
    /// # Errors
    ///
    /// See [`TemplateError`].
    pub fn new(
        aggregate_type: &str,
        event_type: &str,
        sink: &str,
        destination: &str,
    ) -> Result<Self, TemplateError> {
        Ok(Self {
            aggregate_type: aggregate_type.to_owned(),
            event_type: event_type.to_owned(),
            sink: sink.to_owned(),
            destination: parse(destination)?,
        })
    }

    fn fill(&self, event: &Event) -> String {
        let text = |segment: &Segment| match segment {
            Segment::Text(text) => text.clone(),
            Segment::AggregateType => event.aggregate_type.clone(),
            Segment::AggregateId => event.aggregate_id.clone(),
            Segment::EventType => event.event_type.clone(),
        };
        self.destination.iter().map(text).collect()
    }
}

fn parse(template: &str) -> Result<Vec<Segment>, TemplateError> {
    let mut segments = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find(['{', '}']) {
        let (text, from) = rest.split_at(open);
        let Some((name, after)) = from.strip_prefix('{').and_then(|from| from.split_once('}')) else {
            return Err(TemplateError::Unbalanced);
        };
        if !text.is_empty() {
            segments.push(Segment::Text(text.to_owned()));
        }
        segments.push(match name {
            "aggregate_type" => Segment::AggregateType,
            "aggregate_id" => Segment::AggregateId,
            "event_type" => Segment::EventType,
            other => return Err(TemplateError::UnknownPlaceholder(other.to_owned())),
        });
        rest = after;
    }
    if !rest.is_empty() {
        segments.push(Segment::Text(rest.to_owned()));
    }
    if segments.is_empty() { Err(TemplateError::Empty) } else { Ok(segments) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(aggregate_type: &str, event_type: &str) -> Event {
        Event::new(aggregate_type, "7", event_type, serde_json::json!({}))
    }

    #[test]
    fn the_first_matching_route_wins() {
        let routes = Routes::new(vec![
            Route::new("order", "Paid", "nats", "paid.{aggregate_id}").unwrap(),
            Route::new("order", "*", "redis", "orders").unwrap(),
            Route::new("*", "*", "nats", "{aggregate_type}.{event_type}").unwrap(),
        ]);
        let resolve = |aggregate, kind| routes.resolve(&event(aggregate, kind)).unwrap();
        assert_eq!(resolve("order", "Paid"), ("nats".to_owned(), "paid.7".to_owned()));
        assert_eq!(resolve("order", "Placed"), ("redis".to_owned(), "orders".to_owned()));
        assert_eq!(resolve("cart", "Paid"), ("nats".to_owned(), "cart.Paid".to_owned()));
        assert_eq!(Routes::default().resolve(&event("a", "b")), None);
    }

    #[test]
    fn an_invalid_template_is_refused() {
        let refusal = |template| Route::new("*", "*", "s", template).unwrap_err();
        assert_eq!(refusal("a.{id}"), TemplateError::UnknownPlaceholder("id".into()));
        for unbalanced in ["{", "}", "a{aggregate_id", "a}b", "{a{b}"] {
            assert!(
                matches!(refusal(unbalanced), TemplateError::Unbalanced | TemplateError::UnknownPlaceholder(_)),
                "{unbalanced}"
            );
        }
        assert_eq!(refusal(""), TemplateError::Empty);
    }
}
