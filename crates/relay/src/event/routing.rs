//! Routing of events: the first matching route decides the sink and the destination.
//!
//! A route names an aggregate type and an event type, each as it is or `*` for any; its destination is a template with
//! `{aggregate_type}`, `{aggregate_id}` and `{event_type}`.

use symphony_outbox::event::Event;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The aggregate type, or `*`.
    pub aggregate_type: String,
    /// The event type, or `*`.
    pub event_type: String,
    /// The sink that gets it.
    pub sink: String,
    destination: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    AggregateType,
    AggregateId,
    EventType,
}

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// Something in braces that is no name of ours.
    #[error("{{{0}}} is not known: write {{aggregate_type}}, {{aggregate_id}} or {{event_type}}")]
    Unknown(String),
    /// A brace without its other half.
    #[error("a brace is not closed, or not opened")]
    Unbalanced,
    /// It says nothing.
    #[error("it is empty")]
    Empty,
}

/// All rules, the first that fits wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// These rules, in this order.
    #[must_use]
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// The sinks that they name.
    pub fn sinks(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|route| route.sink.as_str())
    }

    /// The sink and the destination of an event.
    pub(super) fn of(&self, event: &Event) -> Option<(String, String)> {
        let fits = |rule: &str, word: &str| rule == "*" || rule == word;
        let route = self.0.iter().find(|route| {
            fits(&route.aggregate_type, &event.aggregate_type) && fits(&route.event_type, &event.event_type)
        })?;
        Some((route.sink.clone(), route.fill(event)))
    }
}

impl Route {
    /// A rule with this destination.
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
        let word = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::AggregateType => event.aggregate_type.clone(),
            Piece::AggregateId => event.aggregate_id.clone(),
            Piece::EventType => event.event_type.clone(),
        };
        self.destination.iter().map(word).collect()
    }
}

fn parse(template: &str) -> Result<Vec<Piece>, TemplateError> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find(['{', '}']) {
        let (text, from) = rest.split_at(open);
        let Some((name, after)) = from.strip_prefix('{').and_then(|from| from.split_once('}')) else {
            return Err(TemplateError::Unbalanced);
        };
        if !text.is_empty() {
            pieces.push(Piece::Text(text.to_owned()));
        }
        pieces.push(match name {
            "aggregate_type" => Piece::AggregateType,
            "aggregate_id" => Piece::AggregateId,
            "event_type" => Piece::EventType,
            other => return Err(TemplateError::Unknown(other.to_owned())),
        });
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest.to_owned()));
    }
    if pieces.is_empty() { Err(TemplateError::Empty) } else { Ok(pieces) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(aggregate_type: &str, event_type: &str) -> Event {
        Event {
            aggregate_type: aggregate_type.into(),
            aggregate_id: "7".into(),
            event_type: event_type.into(),
            payload: serde_json::json!({}).into(),
        }
    }

    #[test]
    fn the_first_route_that_fits_wins() {
        let routes = Routes::new(vec![
            Route::new("order", "Paid", "nats", "paid.{aggregate_id}").unwrap(),
            Route::new("order", "*", "redis", "orders").unwrap(),
            Route::new("*", "*", "nats", "{aggregate_type}.{event_type}").unwrap(),
        ]);
        let of = |aggregate, kind| routes.of(&event(aggregate, kind)).unwrap();
        assert_eq!(of("order", "Paid"), ("nats".to_owned(), "paid.7".to_owned()));
        assert_eq!(of("order", "Placed"), ("redis".to_owned(), "orders".to_owned()));
        assert_eq!(of("cart", "Paid"), ("nats".to_owned(), "cart.Paid".to_owned()));
        assert_eq!(Routes::default().of(&event("a", "b")), None);
    }

    #[test]
    fn a_template_that_makes_no_sense_is_refused() {
        let refusal = |template| Route::new("*", "*", "s", template).unwrap_err();
        assert_eq!(refusal("a.{id}"), TemplateError::Unknown("id".into()));
        for unbalanced in ["{", "}", "a{aggregate_id", "a}b", "{a{b}"] {
            assert!(
                matches!(refusal(unbalanced), TemplateError::Unbalanced | TemplateError::Unknown(_)),
                "{unbalanced}"
            );
        }
        assert_eq!(refusal(""), TemplateError::Empty);
    }
}
