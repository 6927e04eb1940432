//! What the bank has executed, by its own ledger.

use serde::{Deserialize, Serialize};

use super::Error;

/// A line of the bank's ledger: money that has left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// 1, 2, 3, … over all that was executed.
    pub ordinal: u64,
    /// The idempotency key.
    pub key: String,
    /// The instruction.
    pub instruction_id: String,
    /// Its participant.
    pub participant_id: String,
    /// Its number among theirs, as the request had it.
    pub sequence_id: i64,
    /// As it was written, to the last digit.
    pub amount: String,
    /// The currency.
    pub currency: String,
    /// The bank's own name for it.
    pub reference: String,
}

/// A line of the bank's file: a request, which may have been executed.
#[derive(Deserialize)]
struct Entry {
    executed: Option<Execution>,
}

/// Reads the lines of `GET /v1/ledger`, or those of the bank's file, in order.
///
/// # Errors
/// [`Error::Bank`] at the first line that is neither.
pub fn executions(lines: &str) -> Result<Vec<Execution>, Error> {
    let mut found = Vec::new();
    for (number, line) in lines.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |source| Error::Bank { line: number + 1, source };
        // The file has other lines than the listing: a header, then every request with what came of it.
        if line.starts_with("{\"symphony_bank\"") {
            continue;
        }
        if line.starts_with("{\"request\"") {
            found.extend(serde_json::from_str::<Entry>(line).map_err(wrong)?.executed);
        } else {
            found.push(serde_json::from_str(line).map_err(wrong)?);
        }
    }
    Ok(found)
}
