//! In what: a currency of ISO 4217 that can be paid in, and the number of its decimal places.

use iso_currency::Currency;
use serde_json::value::RawValue;
use symphony_relay::rail::Invalid;

use super::{invalid, text};

/// How many decimal places the currency has.
pub(super) fn places(field: Option<&RawValue>) -> Result<usize, Invalid> {
    let real = text(field).and_then(|code| Currency::from_code(&code).filter(|known| known.code() == code));
    let Some(currency) = real else {
        return Err(invalid("currency must be a code of ISO 4217 in three capital letters, such as \"EUR\""));
    };
    // Gold, the code for tests and the code for "none" have no minor unit; drawing rights and the like have one by
    // courtesy, but nobody is paid in them.
    match currency.exponent() {
        Some(places) if !currency.is_special() || is_legal_tender(currency) => Ok(usize::from(places)),
        _ => {
            Err(invalid("currency must be one that can be paid in: not a metal, a unit of account or a test code"))
        }
    }
}

/// The list marks every code that begins with X as special, but some of those are in people's pockets.
fn is_legal_tender(currency: Currency) -> bool {
    !currency.used_by().is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn says(code: &str) -> Result<usize, Invalid> {
        let raw: Box<RawValue> = serde_json::from_str(&serde_json::to_string(code).unwrap()).unwrap();
        places(Some(&raw))
    }

    #[test]
    fn places_are_those_of_the_standard() {
        let known =
            [("EUR", 2), ("USD", 2), ("CHF", 2), ("JPY", 0), ("KRW", 0), ("BHD", 3), ("KWD", 3), ("XOF", 0)];
        for (code, places) in known {
            assert_eq!(says(code), Ok(places), "{code}");
        }
        for code in ["XAF", "XCD", "XPF", "ZWG"] {
            says(code).unwrap();
        }
    }

    #[test]
    fn what_is_no_currency_is_refused() {
        for code in ["", "EU", "EURO", "eur", "Eur", " EUR", "ABC", "978", "€", "XBT", "BTC"] {
            assert!(says(code).is_err(), "{code}");
        }
        let number: Box<RawValue> = serde_json::from_str("978").unwrap();
        assert!(places(Some(&number)).is_err());
        assert!(places(None).is_err());
    }

    #[test]
    fn metals_units_of_account_and_test_codes_are_refused() {
        for code in ["XAU", "XAG", "XPT", "XPD", "XXX", "XTS", "XDR", "XBA"] {
            assert!(says(code).is_err(), "{code}");
        }
    }

    proptest! {
        #![proptest_config(crate::cases::cases())]

        #[test]
        fn no_text_makes_it_panic_and_none_is_repeated(text in "\\PC{0,12}") {
            if let Err(refusal) = says(&text) {
                prop_assert!(text.len() < 4 || !refusal.message.contains(&text));
            }
        }
    }
}
