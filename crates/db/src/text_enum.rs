//! A macro for enums whose variants are text values of the database: reads, prints, parses and serializes them.

use thiserror::Error;

/// A text that is no value of the enum.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{given:?} is not {what}: it must be one of {}", known.join(", "))]
pub struct UnknownValue {
    given: String,
    what: &'static str,
    known: &'static [&'static str],
}

impl UnknownValue {
    pub(crate) fn new(given: &str, what: &'static str, known: &'static [&'static str]) -> Self {
        Self { given: given.to_owned(), what, known }
    }
}

/// Declares an enum with the text of each variant, and a description of the values for errors.
macro_rules! text_enum {
    (
        $(#[$meta:meta])*
        $name:ident, $what:literal {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_meta])* $variant,)+
        }

        impl $name {
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The text in the database.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::text_enum::UnknownValue;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::text_enum::UnknownValue::new(word, $what, &[$($word,)+])),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let word = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                word.parse().map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "json-schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($word,)+] })
            }
        }

        // From text only: for a type of the schema, the driver would send further statements to look it up.
        impl<'a> tokio_postgres::types::FromSql<'a> for $name {
            fn from_sql(
                of: &tokio_postgres::types::Type,
                raw: &'a [u8],
            ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
                Ok(<&str>::from_sql(of, raw)?.parse()?)
            }

            tokio_postgres::types::accepts!(TEXT);
        }
    };
}

pub(crate) use text_enum;
