//! Validates the destination of a payment by the account format of its rail: IBAN, ABA, whichever of them it names, or
//! none.

use iban::{Iban, IbanLike};
use serde::Deserialize;
use serde_json::value::RawValue;
use symphony_relay::rail::Invalid;

use super::{invalid, text};

/// The account format of a rail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Destination {
    /// `{"iban": …}`, with the right length and check digits for its country.
    Iban,
    /// `{"aba": …, "account": …}`: a routing number with a valid check digit, and an account number.
    Aba,
    /// Validated by the fields that it names: `iban` as for IBAN, `aba` as for ABA. Other destinations pass.
    #[default]
    Known,
    /// Not validated: only the bank knows its format.
    Any,
}

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    iban: Option<&'a RawValue>,
    #[serde(borrow)]
    aba: Option<&'a RawValue>,
    #[serde(borrow)]
    account: Option<&'a RawValue>,
}

impl Destination {
    pub(super) fn check(self, field: Option<&RawValue>) -> Result<(), Invalid> {
        let fields = field.and_then(|raw| serde_json::from_str::<Fields<'_>>(raw.get()).ok());
        match self {
            Self::Any => Ok(()),
            Self::Known => {
                let is_object = field.is_some_and(|raw| raw.get().trim_start().starts_with('{'));
                match fields {
                    Some(Fields { iban: Some(_), .. }) => Self::Iban.check(field),
                    Some(Fields { aba: Some(_), .. }) => Self::Aba.check(field),
                    // A duplicate field does not parse: the bank might read the other one.
                    None if is_object => Err(invalid("destination must name each of its fields once")),
                    Some(_) | None => Ok(()),
                }
            }
            Self::Iban => {
                let iban = fields.and_then(|fields| text(fields.iban));
                if iban.is_some_and(|iban| is_iban(&iban)) { Ok(()) } else { Err(invalid(IBAN)) }
            }
            Self::Aba => {
                let Some(fields) = fields else { return Err(invalid(ABA)) };
                if !text(fields.aba).is_some_and(|aba| is_routing_number(&aba)) {
                    return Err(invalid(ABA));
                }
                if !text(fields.account).is_some_and(|account| is_us_account(&account)) {
                    return Err(invalid(ACCOUNT));
                }
                Ok(())
            }
        }
    }
}

const IBAN: &str = "destination.iban must be an IBAN in capitals without spaces, of the length of its country and with \
                    the right check digits";
const ABA: &str =
    "destination.aba must be a routing number: nine digits in a string, the last of which checks the others";
const ACCOUNT: &str = "destination.account must be 1 to 17 letters, digits or hyphens in a string";

fn is_iban(text: &str) -> bool {
    // The parser also accepts the print format with spaces; banks do not.
    text.parse::<Iban>().is_ok_and(|iban| iban.electronic_str() == text)
}

fn is_routing_number(text: &str) -> bool {
    let Ok(digits): Result<[u8; 9], _> = text.as_bytes().try_into() else { return false };
    if !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let weighted =
        digits.iter().zip([3, 7, 1].into_iter().cycle()).map(|(digit, weight)| u32::from(digit - b'0') * weight);
    // The first two digits: the government, a Federal Reserve district, the same for thrifts and for electronic
    // payments, traveller's cheques. Nine zeros have a valid checksum and are no routing number.
    let district = (digits[0] - b'0') * 10 + (digits[1] - b'0');
    let assigned = matches!(district, 0..=12 | 21..=32 | 61..=72 | 80);
    weighted.sum::<u32>() % 10 == 0 && assigned && text != "000000000"
}

fn is_us_account(text: &str) -> bool {
    (1..=17).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && text.bytes().any(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checked(destination: Destination, json: &str) -> Result<(), String> {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        destination.check(Some(&raw)).map_err(|invalid| invalid.message)
    }

    fn iban(text: &str) -> Result<(), String> {
        checked(Destination::Iban, &format!(r#"{{"iban": "{text}", "name": "A. Person"}}"#))
    }

    fn aba(text: &str, account: &str) -> Result<(), String> {
        checked(Destination::Aba, &format!(r#"{{"aba": "{text}", "account": "{account}"}}"#))
    }

    const IBANS: [&str; 6] = [
        "DE89370400440532013000",
        "GB29NWBK60161331926819",
        "FR1420041010050500013M02606",
        "NO9386011117947",
        "MT84MALT011000012345MTLCAST001S",
        "CH9300762011623852957",
    ];

    #[test]
    fn by_default_the_account_that_a_destination_names_is_checked() {
        let known = |json: &str| checked(Destination::default(), json);
        for json in [
            r#"{"iban": "DE89370400440532013000"}"#,
            r#"{"aba": "021000021", "account": "1"}"#,
            r#"{"bic": "COBADEFF"}"#,
            r#"{"iban": null}"#,
            r#""acct_7""#,
            "null",
        ] {
            known(json).unwrap();
        }
        for (json, field) in [
            (r#"{"iban": "DE88370400440532013000"}"#, "destination.iban"),
            (r#"{"iban": 7}"#, "destination.iban"),
            (r#"{"aba": "021000022", "account": "1"}"#, "destination.aba"),
            (r#"{"aba": "021000021"}"#, "destination.account"),
            (r#"{"iban": "DE89370400440532013000", "iban": "DE88370400440532013000"}"#, "destination must name"),
        ] {
            assert!(known(json).unwrap_err().starts_with(field), "{json}");
        }
        Destination::default().check(None).unwrap();
        checked(Destination::Any, r#"{"iban": "DE88370400440532013000"}"#).unwrap();
    }

    #[test]
    fn published_examples_pass() {
        for text in IBANS {
            iban(text).unwrap();
        }
        for text in ["011000015", "021000021", "121000248", "322271627", "000000518"] {
            aba(text, "123456789").unwrap();
        }
    }

    #[test]
    fn an_iban_of_the_wrong_form_is_refused() {
        for text in [
            "",
            "DE8937040044053201300",
            "DE893704004405320130000",
            "de89370400440532013000",
            "DE89 3704 0044 0532 0130 00",
            "ZZ89370400440532013000",
            "DE88370400440532013000",
            "DE89-3704",
        ] {
            assert!(iban(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_routing_number_of_the_wrong_form_is_refused() {
        for text in ["", "02100002", "0210000210", "021000022", "000000000", "500000005", "02100002a", "０２１"]
        {
            assert!(aba(text, "1").unwrap_err().starts_with("destination.aba"), "{text}");
        }
        for account in ["", "---", "123456789012345678", "12 34", "é"] {
            assert!(aba("021000021", account).unwrap_err().starts_with("destination.account"), "{account}");
        }
    }

    #[test]
    fn a_missing_destination_or_one_that_is_no_object_is_refused_by_iban_and_aba() {
        for json in ["null", "[]", "\"DE89370400440532013000\"", "{}", r#"{"iban": 1, "aba": 2}"#] {
            assert!(checked(Destination::Iban, json).is_err(), "{json}");
            assert!(checked(Destination::Aba, json).is_err(), "{json}");
            assert!(checked(Destination::Any, json).is_ok(), "{json}");
        }
        assert!(Destination::Iban.check(None).is_err());
    }

    proptest! {
        #![proptest_config(crate::proptest_config::proptest_config())]

        #[test]
        fn one_wrong_character_of_an_iban_is_always_detected(
            which in 0..IBANS.len(), at in 4_usize..15, shift in 1_u8..10,
        ) {
            let mut bytes = IBANS[which].as_bytes().to_vec();
            let (first, count) = if bytes[at].is_ascii_digit() { (b'0', 10) } else { (b'A', 26) };
            bytes[at] = first + (bytes[at] - first + shift) % count;
            let text = String::from_utf8(bytes).unwrap();
            prop_assert!(iban(&text).is_err());
            prop_assert!(!iban(&text).unwrap_err().contains(&text));
        }

        #[test]
        fn one_wrong_digit_of_a_routing_number_is_always_detected(at in 0_usize..9, shift in 1_u8..10) {
            let mut bytes = *b"021000021";
            bytes[at] = b'0' + (bytes[at] - b'0' + shift) % 10;
            prop_assert!(!is_routing_number(std::str::from_utf8(&bytes).unwrap()));
        }

        #[test]
        fn no_destination_makes_it_panic(text in "\\PC{0,40}") {
            let json = serde_json::json!({ "iban": text, "aba": text, "account": text }).to_string();
            let _ = checked(Destination::Iban, &json);
            let _ = checked(Destination::Aba, &json);
        }
    }
}
