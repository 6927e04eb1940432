//! The error text of a failed entry, checked before it is sent to the database.

use std::fmt;

use thiserror::Error;

/// Why a reason is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum InvalidReason {
    /// The text is empty or only white space.
    #[error("the reason must not be blank")]
    Blank,
    /// The text contains a NUL character, which PostgreSQL cannot store.
    #[error("the reason must not contain a NUL character")]
    Nul,
}

/// Why an entry failed or moved to the DLQ. The database masks personal data in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    /// Checks the text.
    ///
    /// # Errors
    ///
    /// See [`InvalidReason`].
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidReason> {
        let text = text.into();
        if text.trim().is_empty() {
            return Err(InvalidReason::Blank);
        }
        if text.contains('\0') {
            return Err(InvalidReason::Nul);
        }
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Omits the text, which may contain personal data until the database has masked it.
impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reason({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_not_blank_and_not_printed() {
        assert_eq!(Reason::new(" \n").unwrap_err(), InvalidReason::Blank);
        assert_eq!(Reason::new("a\0b").unwrap_err(), InvalidReason::Nul);
        assert_eq!(format!("{:?}", Reason::new("ann@example.org").unwrap()), "Reason(15 bytes)");
    }
}
