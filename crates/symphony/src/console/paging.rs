//! Pages: how many at a time, and where the next one begins. A cursor says nothing to whoever holds it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::problem::Problem;

/// How many there are on a page, unless the request says otherwise.
const USUAL: i32 = 50;
/// The most that a page has.
pub(super) const MOST: i32 = 200;
/// No cursor that was given out is longer.
pub(super) const LONGEST: usize = 1200;

/// A page, and where the next one begins.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Page<T> {
    /// What is on it.
    pub(crate) items: Vec<T>,
    /// Give it back as `cursor` for the next page; none where this is the last. A page may have few or no items and
    /// still not be the last: then so many were looked at that it was time to answer.
    pub(crate) next_cursor: Option<String>,
}

/// How many were asked for.
pub(crate) fn limit(asked: Option<i32>) -> Result<i32, Problem> {
    match asked {
        None => Ok(USUAL),
        Some(limit) if (1..=MOST).contains(&limit) => Ok(limit),
        Some(limit) => Err(Problem::bad(format!("limit must be from 1 to {MOST}, not {limit}"))),
    }
}

/// What kind of thing a cursor stands on: one of another list is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Outbox = 1,
    Operation = 2,
    Participant = 3,
    Event = 4,
    Metadata = 5,
}

/// The cursor after this.
pub(crate) fn cursor(kind: Kind, place: &[u8]) -> String {
    let mut bytes = vec![kind as u8];
    bytes.extend_from_slice(place);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What a cursor stands on.
pub(crate) fn place(kind: Kind, cursor: Option<&str>) -> Result<Option<Vec<u8>>, Problem> {
    let Some(cursor) = cursor.filter(|cursor| !cursor.is_empty()) else { return Ok(None) };
    let wrong = || Problem::bad("the cursor is not one that this list gave out");
    if cursor.len() > LONGEST {
        return Err(wrong());
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| wrong())?;
    match bytes.split_first() {
        Some((first, place)) if *first == kind as u8 => Ok(Some(place.to_vec())),
        _ => Err(wrong()),
    }
}

/// The id that a cursor stands on.
pub(crate) fn id(kind: Kind, cursor: Option<&str>) -> Result<Option<Uuid>, Problem> {
    let wrong = |_| Problem::bad("the cursor is not one that this list gave out");
    place(kind, cursor)?.map(|place| Uuid::from_slice(&place).map_err(wrong)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place_and_to_no_other_list() {
        let id = Uuid::max();
        let given = cursor(Kind::Outbox, id.as_bytes());
        assert_eq!(super::id(Kind::Outbox, Some(&given)).unwrap(), Some(id));
        assert_eq!(super::id(Kind::Outbox, None).unwrap(), None);
        let long = "A".repeat(LONGEST + 1);
        for wrong in
            ["x", "AAAA", "%%%", &cursor(Kind::Operation, id.as_bytes()), &cursor(Kind::Outbox, b"abc"), &long]
        {
            assert!(super::id(Kind::Outbox, Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_page_has_from_one_to_two_hundred() {
        assert_eq!((limit(None).unwrap(), limit(Some(200)).unwrap()), (50, 200));
        assert!(limit(Some(0)).is_err() && limit(Some(201)).is_err());
    }
}
