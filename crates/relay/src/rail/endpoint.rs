//! The name of the bank that a rail reaches.

use std::fmt;

use sha2::{Digest, Sha256};

/// The longest name before the digest.
const MAX_NAME: usize = 100;
/// How many letters of the digest are kept, four bits each.
const DIGEST_LETTERS: usize = 16;

/// Where a rail sends to: a name for humans, `#`, and a digest of what identifies the bank there.
///
/// The digest is 64 bits of SHA-256, as letters from k to z for the hexadecimal digits from 0 to f: the redaction of error
/// texts takes digits for numbers of accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

impl Endpoint {
    /// An endpoint with this name. `identity` is what identifies the bank: address, account, tenant. It must contain no
    /// secret: the name is stored as it is, and a digest can be guessed.
    #[must_use]
    pub fn new(name: &str, identity: &[&str]) -> Self {
        let mut digest = Sha256::new();
        for part in identity {
            // With its length: otherwise ["ab", "c"] and ["a", "bc"] would be one bank.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part.as_bytes());
        }
        let nibbles = digest.finalize().into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        let letters: String = nibbles.take(DIGEST_LETTERS).map(|nibble| char::from(b'k' + nibble)).collect();
        let plain = |letter: char| if letter.is_ascii_graphic() && letter != '#' { letter } else { '-' };
        let name: String = name.chars().take(MAX_NAME).map(plain).collect();
        Self(format!("{name}#{letters}"))
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_differs_with_its_name_and_with_each_part_of_its_identity() {
        let endpoints = [
            Endpoint::new("bank", &["ab", "c"]),
            Endpoint::new("bank", &["a", "bc"]),
            Endpoint::new("bank", &["abc"]),
            Endpoint::new("bank", &["abc", ""]),
            Endpoint::new("other", &["ab", "c"]),
        ];
        for (index, endpoint) in endpoints.iter().enumerate() {
            assert!(!endpoints[index + 1..].contains(endpoint), "{endpoint}");
        }
        assert_eq!(endpoints[0], Endpoint::new("bank", &["ab", "c"]));
    }

    #[test]
    fn the_name_of_an_endpoint_stays_the_same_in_every_release() {
        // It is in the ledgers of users: with another digest every unknown outcome would stop.
        assert_eq!(
            Endpoint::new("bank.example", &["https://bank.example/v1"]).as_str(),
            "bank.example#xqtzqytuuyrsusnn"
        );
    }

    #[test]
    fn any_name_fits_the_database() {
        for name in ["", "#", "a b\n", &"ü".repeat(500)] {
            let endpoint = Endpoint::new(name, &[]);
            let (name, digest) = endpoint.as_str().split_once('#').unwrap();
            assert!(name.len() <= 100 && name.chars().all(|letter| letter.is_ascii_graphic()), "{endpoint}");
            assert!(
                digest.len() == 16 && digest.chars().all(|letter| ('k'..='z').contains(&letter)),
                "{endpoint}"
            );
        }
    }
}
