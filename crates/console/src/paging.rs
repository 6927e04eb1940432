//! Pages of a list, and the opaque cursors between them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;

use super::problem::Problem;

/// Items per page if the request has no limit.
const DEFAULT_LIMIT: i32 = 50;
/// The largest limit.
pub(super) const MAX_LIMIT: i32 = 200;
/// The longest cursor, in characters.
pub(super) const MAX_CURSOR_CHARS: usize = 1200;

/// One page of a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Page<T> {
    /// The items of this page.
    pub(crate) items: Vec<T>,
    /// Send it back as `cursor` to get the next page; null on the last page. A page with few or no items need not be
    /// the last: a search stops after it has examined a limited number of rows.
    pub(crate) next_cursor: Option<String>,
}

/// Checks the limit of a request.
pub(crate) fn limit(limit: Option<i32>) -> Result<i32, Problem> {
    match limit {
        None => Ok(DEFAULT_LIMIT),
        Some(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(limit),
        Some(limit) => Err(Problem::bad_request(format!("limit must be from 1 to {MAX_LIMIT}, not {limit}"))),
    }
}

/// The list that a cursor belongs to. A cursor of another list is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CursorKind {
    Outbox = 1,
    Operation = 2,
    Participant = 3,
    Event = 4,
    Metadata = 5,
}

/// A cursor after the item with this key.
pub(crate) fn encode(kind: CursorKind, key: &[u8]) -> String {
    let mut bytes = vec![kind as u8];
    bytes.extend_from_slice(key);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The key in a cursor; none if the request has no cursor.
pub(crate) fn decode(kind: CursorKind, cursor: Option<&str>) -> Result<Option<Vec<u8>>, Problem> {
    let Some(cursor) = cursor.filter(|cursor| !cursor.is_empty()) else { return Ok(None) };
    if cursor.len() > MAX_CURSOR_CHARS {
        return Err(invalid_cursor());
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| invalid_cursor())?;
    match bytes.split_first() {
        Some((first, key)) if *first == kind as u8 => Ok(Some(key.to_vec())),
        _ => Err(invalid_cursor()),
    }
}

/// The UUID in a cursor.
pub(crate) fn decode_uuid(kind: CursorKind, cursor: Option<&str>) -> Result<Option<Uuid>, Problem> {
    decode(kind, cursor)?.map(|key| Uuid::from_slice(&key).map_err(|_| invalid_cursor())).transpose()
}

/// Why a cursor was refused.
pub(crate) fn invalid_cursor() -> Problem {
    Problem::bad_request("the cursor is not valid for this list: send next_cursor of the page before, unchanged")
}

/// A page of a list that does not say whether it has more: a full page may have a next one.
pub(crate) fn page<T>(items: Vec<T>, limit: i32, cursor: impl FnOnce(&T) -> String) -> Page<T> {
    let is_full = i32::try_from(items.len()).is_ok_and(|count| count == limit);
    let next_cursor = items.last().filter(|_| is_full).map(cursor);
    Page { items, next_cursor }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_decodes_to_its_key_and_only_for_its_list() {
        let id = Uuid::max();
        let given = encode(CursorKind::Outbox, id.as_bytes());
        assert_eq!(decode_uuid(CursorKind::Outbox, Some(&given)).unwrap(), Some(id));
        assert_eq!(decode_uuid(CursorKind::Outbox, None).unwrap(), None);
        let long = "A".repeat(MAX_CURSOR_CHARS + 1);
        for wrong in [
            "x",
            "AAAA",
            "%%%",
            &encode(CursorKind::Operation, id.as_bytes()),
            &encode(CursorKind::Outbox, b"abc"),
            &long,
        ] {
            assert!(decode_uuid(CursorKind::Outbox, Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_is_from_one_to_two_hundred() {
        assert_eq!((limit(None).unwrap(), limit(Some(200)).unwrap()), (50, 200));
        assert!(limit(Some(0)).is_err() && limit(Some(201)).is_err());
    }
}
