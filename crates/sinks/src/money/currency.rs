//! Validates the currency of a payment: an ISO 4217 code that payments are made in, with its number of decimal places.

use iso_currency::Currency;
use serde_json::value::RawValue;
use symphony_relay::rail::Invalid;

use super::{invalid, text};

/// How many decimal places the currency has.
pub(super) fn places(field: Option<&RawValue>) -> Result<usize, Invalid> {
    places_of(&text(field).unwrap_or_default())
}

/// The same for a code.
pub(super) fn places_of(code: &str) -> Result<usize, Invalid> {
    let Some(currency) = Currency::from_code(code).filter(|currency| currency.code() == code) else {
        return Err(invalid("currency must be a code of ISO 4217 in three capital letters, such as \"EUR\""));
    };
    // Metals, the test code and the code for "no currency" have no minor unit. Units of account such as special drawing
    // rights have one, but no payment is made in them.
    match currency.exponent() {
        Some(places) if !currency.is_special() || is_legal_tender(currency) => Ok(usize::from(places)),
        _ => {
            Err(invalid("currency must be one that can be paid in: not a metal, a unit of account or a test code"))
        }
    }
}

/// The crate marks every code that begins with X as special, but some of them, such as XOF, are legal tender.
fn is_legal_tender(currency: Currency) -> bool {
    !currency.used_by().is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checked(code: &str) -> Result<usize, Invalid> {
        let raw: Box<RawValue> = serde_json::from_str(&serde_json::to_string(code).unwrap()).unwrap();
        places(Some(&raw))
    }

    #[test]
    fn places_are_those_of_the_standard() {
        let known =
            [("EUR", 2), ("USD", 2), ("CHF", 2), ("JPY", 0), ("KRW", 0), ("BHD", 3), ("KWD", 3), ("XOF", 0)];
        for (code, places) in known {
            assert_eq!(checked(code), Ok(places), "{code}");
        }
        for code in ["XAF", "XCD", "XPF", "ZWG"] {
            checked(code).unwrap();
        }
    }

    #[test]
    fn an_unknown_currency_is_refused() {
        for code in ["", "EU", "EURO", "eur", "Eur", " EUR", "ABC", "978", "€", "XBT", "BTC"] {
            assert!(checked(code).is_err(), "{code}");
        }
        let number: Box<RawValue> = serde_json::from_str("978").unwrap();
        assert!(places(Some(&number)).is_err());
        assert!(places(None).is_err());
    }

    #[test]
    fn metals_units_of_account_and_test_codes_are_refused() {
        for code in ["XAU", "XAG", "XPT", "XPD", "XXX", "XTS", "XDR", "XBA"] {
            assert!(checked(code).is_err(), "{code}");
        }
    }

    proptest! {
        #![proptest_config(crate::proptest_config::proptest_config())]

        #[test]
        fn no_text_makes_it_panic_and_none_is_repeated(text in "\\PC{0,12}") {
            if let Err(refusal) = checked(&text) {
                prop_assert!(text.len() < 4 || !refusal.message.contains(&text));
            }
        }
    }
}
