//! One page of a search result, for any lane.

/// A page of rows `T`, and the cursor `C` of the next page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, C> {
    /// The rows that match, in the order of the search.
    pub rows: Vec<T>,
    /// How many rows the database examined, where it reports that: a search stops after a limit of examined rows.
    pub examined: Option<i32>,
    /// Where the next page starts; none if this is the last page.
    pub next: Option<C>,
}
