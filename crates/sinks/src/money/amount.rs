//! Validates the amount of a payment: a decimal in a string, above zero, with at most the currency's decimal places.
//!
//! The amount stays text. A JSON number is refused even if it looks right, since the producer or the bank may read it
//! as a float.

use serde_json::value::RawValue;
use symphony_relay::rail::Invalid;

use super::{invalid, text};

/// Digits before and after the point together: the limit of ISO 20022 messages.
const MAX_DIGITS: usize = 18;

pub(super) fn check(field: Option<&RawValue>, places: usize) -> Result<(), Invalid> {
    let Some(text) = text(field) else {
        let number = field.is_some_and(|raw| raw.get().starts_with(|c: char| c == '-' || c.is_ascii_digit()));
        return Err(invalid(if number {
            "amount must be a decimal in a string, such as \"10.00\"; a JSON number may be a float: send a string"
        } else {
            "amount must be a decimal in a string, such as \"10.00\""
        }));
    };
    let Some((whole, fraction)) = parts(&text) else {
        return Err(invalid(
            "amount must be digits with at most one point between them: no sign, no exponent, no spaces, no zeros in front",
        ));
    };
    if whole.len() + fraction.len() > MAX_DIGITS {
        return Err(invalid(format!("amount must have at most {MAX_DIGITS} digits")));
    }
    if fraction.len() > places {
        return Err(invalid(format!("amount must have at most {places} decimal places in this currency")));
    }
    if whole.bytes().chain(fraction.bytes()).all(|byte| byte == b'0') {
        return Err(invalid("amount must be above zero"));
    }
    Ok(())
}

/// The digits before and after the point of an unsigned decimal. None if it is written in another way.
pub(super) fn parts(text: &str) -> Option<(&str, &str)> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = whole.len() > 1 && whole.starts_with('0');
    let is_decimal = digits(whole) && fraction.is_none_or(digits) && !leading_zero;
    is_decimal.then(|| (whole, fraction.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checked(json: &str, places: usize) -> Result<(), String> {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        check(Some(&raw), places).map_err(|invalid| invalid.message)
    }

    #[test]
    fn amounts_that_a_bank_can_read_pass() {
        for (json, places) in [
            (r#""10.00""#, 2),
            (r#""0.01""#, 2),
            (r#""1""#, 0),
            (r#""1.5""#, 2),
            (r#""0.001""#, 3),
            (r#""9999999999999999.99""#, 2),
        ] {
            assert_eq!(checked(json, places), Ok(()), "{json}");
        }
    }

    #[test]
    fn a_number_is_refused_with_the_advice_to_send_a_string() {
        for json in ["10", "10.00", "-1", "1e3"] {
            assert!(checked(json, 2).unwrap_err().contains("send a string"), "{json}");
        }
    }

    #[test]
    fn anything_but_a_plain_decimal_is_refused() {
        for json in [
            r#""""#,
            r#"".5""#,
            r#""5.""#,
            r#""1.2.3""#,
            r#""-1""#,
            r#""+1""#,
            r#""1e3""#,
            r#""1,000""#,
            r#"" 1""#,
            r#""1 ""#,
            r#""007""#,
            r#""00.5""#,
            r#""NaN""#,
            r#""0x10""#,
            r#""１""#,
            r#""1\u0000""#,
            "null",
            "true",
            "[]",
            "{}",
        ] {
            assert!(checked(json, 2).is_err(), "{json}");
        }
    }

    #[test]
    fn zero_is_refused() {
        for json in [r#""0""#, r#""0.00""#, r#""0.0""#] {
            assert_eq!(checked(json, 2), Err("amount must be above zero".to_owned()));
        }
    }

    #[test]
    fn places_that_the_currency_does_not_have_are_refused_even_if_they_are_zeros() {
        assert!(checked(r#""1.0""#, 0).is_err());
        assert!(checked(r#""1.000""#, 2).is_err());
        assert!(checked(r#""1.0001""#, 3).is_err());
    }

    #[test]
    fn more_digits_than_a_payment_message_holds_are_refused() {
        assert!(checked(r#""99999999999999999.99""#, 2).is_err());
        assert!(checked(&format!("\"{}\"", "9".repeat(100_000)), 2).is_err());
    }

    proptest! {
        #![proptest_config(crate::proptest_config::proptest_config())]

        #[test]
        fn exactly_the_decimals_that_fit_pass(whole in 0_u64..=9_999_999_999_999, cents in 0_u32..100) {
            let result = checked(&format!("\"{whole}.{cents:02}\""), 2);
            prop_assert_eq!(result.is_ok(), whole > 0 || cents > 0);
        }

        #[test]
        fn an_accepted_text_is_a_plain_decimal_above_zero(text in "[0-9.+eE, -]{0,24}", places in 0_usize..5) {
            if checked(&serde_json::to_string(&text).unwrap(), places).is_ok() {
                let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
                prop_assert!(whole.parse::<u128>().unwrap() + fraction.parse::<u128>().unwrap_or(0) > 0);
                prop_assert!(fraction.len() <= places && text.len() <= MAX_DIGITS + 1);
                prop_assert_eq!(text.matches('.').count(), usize::from(!fraction.is_empty()));
            }
        }

        #[test]
        fn a_refusal_never_repeats_the_amount(text in "[a-z]{8,20}") {
            let message = checked(&serde_json::to_string(&text).unwrap(), 2).unwrap_err();
            prop_assert!(!message.contains(&text));
        }
    }
}
