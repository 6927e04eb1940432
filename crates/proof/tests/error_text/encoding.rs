//! How a text can be written otherwise, so that a reader of the format still reads the same.

use std::fmt::Write;

use proptest::prelude::*;

/// An encoding of a whole text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Encoding {
    /// `%40`, for all but letters and digits.
    Percent,
    /// `%40`, for everything.
    PercentAll,
    /// As within a string of JSON.
    Json,
    /// `\u0040`, for everything.
    Unicode,
    /// `\x40`, for all ASCII but letters and digits.
    Hex,
    /// `&quot;`, as within HTML and XML.
    Names,
    /// `&#64;`, for all but letters and digits.
    Decimal,
    /// `&#x40;`, for everything.
    Hexadecimal,
}

impl Encoding {
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        prop::sample::select(vec![
            Self::Percent,
            Self::PercentAll,
            Self::Json,
            Self::Unicode,
            Self::Hex,
            Self::Names,
            Self::Decimal,
            Self::Hexadecimal,
        ])
    }

    pub(crate) fn of(self, text: &str) -> String {
        let mut encoded = String::new();
        for c in text.chars() {
            let plain = c.is_ascii_alphanumeric();
            match self {
                Self::Percent | Self::Decimal | Self::Hex if plain => encoded.push(c),
                Self::Hex if c.is_ascii() => write!(encoded, "\\x{:02x}", u32::from(c)).unwrap(),
                Self::Percent | Self::PercentAll => {
                    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                        write!(encoded, "%{byte:02X}").unwrap();
                    }
                }
                Self::Json => {
                    let quoted = serde_json::to_string(&c).unwrap();
                    encoded.push_str(&quoted[1..quoted.len() - 1]);
                }
                Self::Unicode => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(encoded, "\\u{unit:04x}").unwrap();
                    }
                }
                Self::Decimal => write!(encoded, "&#{};", u32::from(c)).unwrap(),
                Self::Hexadecimal => write!(encoded, "&#x{:x};", u32::from(c)).unwrap(),
                Self::Names => match c {
                    '&' => encoded.push_str("&amp;"),
                    '<' => encoded.push_str("&lt;"),
                    '>' => encoded.push_str("&gt;"),
                    '"' => encoded.push_str("&quot;"),
                    '\'' => encoded.push_str("&apos;"),
                    c => encoded.push(c),
                },
                Self::Hex => encoded.push(c),
            }
        }
        encoded
    }
}

/// Other characters that look the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Disguise {
    None,
    /// Letters, digits and marks as wide as those of Chinese writing.
    Fullwidth,
    /// A character without a width between any two.
    ZeroWidth,
    /// Digits as Arabic writes them.
    Arabic,
}

impl Disguise {
    pub(crate) fn any() -> impl Strategy<Value = Self> {
        prop_oneof![4 => Just(Self::None), 1 => Just(Self::Fullwidth), 1 => Just(Self::ZeroWidth), 1 => Just(Self::Arabic)]
    }

    pub(crate) fn of(self, text: &str) -> String {
        let shifted = |c: char, by: u32| char::from_u32(u32::from(c) + by).unwrap();
        match self {
            Self::None => text.to_owned(),
            Self::Fullwidth => {
                let wide = |c: char| match c {
                    ' ' => '\u{3000}',
                    '!'..='~' => shifted(c, 0xfee0),
                    c => c,
                };
                text.chars().map(wide).collect()
            }
            Self::ZeroWidth => text.chars().flat_map(|c| [c, '\u{200b}']).collect(),
            Self::Arabic => {
                text.chars().map(|c| if c.is_ascii_digit() { shifted(c, 0x660 - 0x30) } else { c }).collect()
            }
        }
    }
}
