//! Signs requests, and verifies callbacks, by the Standard Webhooks scheme, version 1.
//!
//! Each secret signs `id.timestamp.body` with HMAC-SHA256. During a rotation the old and the new secret both sign, and
//! the receiver may verify either. So may this one.

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Operators copy secrets by hand and lose the padding.
const BASE64_OPTIONAL_PADDING: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The most signatures of a callback that are compared.
const MAX_SIGNATURES: usize = 16;

/// The error for a secret of another format.
pub(super) const SECRET_FORMAT: &str =
    "must contain secrets of the form whsec_…, base64 of 24 to 64 bytes each, with spaces between";

/// Signs with one or more keys.
#[derive(Clone)]
pub(super) struct Signer {
    keys: Vec<Hmac<Sha256>>,
}

impl Signer {
    pub(super) fn none() -> Self {
        Self { keys: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Adds all secrets of a text, or none if one is invalid.
    pub(super) fn add(&mut self, text: &str) -> Option<()> {
        let keys: Option<Vec<_>> = text.split_whitespace().map(key).collect();
        self.keys.extend(keys?);
        Some(())
    }

    /// The value of `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let one = |mac: Hmac<Sha256>| format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        self.macs(id, timestamp, body).map(one).collect::<Vec<_>>().join(" ")
    }

    /// Whether one of the signatures, separated by blanks, is by one of the keys. Compares in constant time.
    pub(super) fn verify(&self, id: &str, timestamp: u64, body: &[u8], signatures: &str) -> bool {
        let decode = |signature: &str| STANDARD.decode(signature.strip_prefix("v1,")?).ok();
        let given: Vec<_> = signatures.split(' ').take(MAX_SIGNATURES).filter_map(decode).collect();
        self.macs(id, timestamp, body).any(|mac| given.iter().any(|given| mac.clone().verify_slice(given).is_ok()))
    }

    fn macs(&self, id: &str, timestamp: u64, body: &[u8]) -> impl Iterator<Item = Hmac<Sha256>> {
        self.keys.iter().map(move |key| {
            let mut mac = key.clone();
            mac.update(id.as_bytes());
            mac.update(b".");
            mac.update(timestamp.to_string().as_bytes());
            mac.update(b".");
            mac.update(body);
            mac
        })
    }
}

fn key(text: &str) -> Option<Hmac<Sha256>> {
    let bytes = Zeroizing::new(BASE64_OPTIONAL_PADDING.decode(text.strip_prefix("whsec_")?).ok()?);
    (24..=64).contains(&bytes.len()).then(|| Hmac::new_from_slice(&bytes).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn signer(text: &str) -> Signer {
        let mut signer = Signer::none();
        signer.add(text).unwrap();
        signer
    }

    #[test]
    fn the_published_example_has_the_published_signature() {
        let signature =
            signer(SECRET).sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn several_secrets_sign_the_same_request() {
        let other = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
        let both = signer(&format!("{SECRET}\n{other}")).sign("id", 1, b"{}");
        let expected = format!("{} {}", signer(SECRET).sign("id", 1, b"{}"), signer(other).sign("id", 1, b"{}"));
        assert_eq!(both, expected);
    }

    #[test]
    fn only_a_signature_by_one_of_the_keys_over_the_same_message_is_accepted() {
        let other = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
        let (signed, by_other) = (signer(SECRET).sign("id", 7, b"{}"), signer(other).sign("id", 7, b"{}"));
        let ours = signer(SECRET);
        assert!(ours.verify("id", 7, b"{}", &signed));
        assert!(ours.verify("id", 7, b"{}", &format!("v2,x {by_other} {signed}")));
        assert!(signer(&format!("{other} {SECRET}")).verify("id", 7, b"{}", &signed));
        for (id, timestamp, body, signatures) in [
            ("other", 7, b"{}", signed.as_str()),
            ("id", 8, b"{}", &signed),
            ("id", 7, b"[]", &signed),
            ("id", 7, b"{}", &by_other),
            ("id", 7, b"{}", ""),
            ("id", 7, b"{}", "v1,"),
            ("id", 7, b"{}", signed.trim_start_matches("v1,")),
            ("id", 7, b"{}", &signed[..signed.len() - 4]),
        ] {
            assert!(!ours.verify(id, timestamp, body, signatures), "{id} {timestamp} {signatures}");
        }
        assert!(!Signer::none().verify("id", 7, b"{}", &signed));
    }

    #[test]
    fn a_secret_of_another_format_is_refused() {
        for text in ["MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_", "whsec_c2hvcnQ=", "whsec_!!!", "secret"] {
            assert!(Signer::none().add(text).is_none(), "{text}");
        }
        let mut signer = Signer::none();
        assert!(signer.add(&format!("{SECRET} whsec_c2hvcnQ=")).is_none());
        assert!(signer.is_empty());
    }
}
