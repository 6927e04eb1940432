//! The times of the payment lane over sqlx.
//!
//! sqlx does not support jiff, and its features chrono and time would put one of those crates into every producer.

use jiff::Timestamp;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueFormat, PgValueRef, Postgres};
use sqlx::{Decode, Encode, Type, TypeInfo};

const YEAR_2000_IN_UNIX_MICROSECONDS: i64 = 946_684_800_000_000;

/// A timestamptz: microseconds since the year 2000, in UTC.
pub(super) struct Timestamptz(pub(super) Timestamp);

impl Type<Postgres> for Timestamptz {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("TIMESTAMPTZ")
    }

    fn compatible(of: &PgTypeInfo) -> bool {
        of.name() == "TIMESTAMPTZ"
    }
}

impl PgHasArrayType for Timestamptz {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("TIMESTAMPTZ[]")
    }
}

impl Encode<'_, Postgres> for Timestamptz {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let since_2000 = self.0.as_microsecond() - YEAR_2000_IN_UNIX_MICROSECONDS;
        Encode::<Postgres>::encode(since_2000, buffer)
    }
}

impl Decode<'_, Postgres> for Timestamptz {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        match value.format() {
            PgValueFormat::Binary => {
                let since_2000 = i64::from_be_bytes(value.as_bytes()?.try_into()?);
                let since_1970 = since_2000
                    .checked_add(YEAR_2000_IN_UNIX_MICROSECONDS)
                    .ok_or("a timestamptz beyond the range of jiff")?;
                Ok(Self(Timestamp::from_microsecond(since_1970)?))
            }
            PgValueFormat::Text => Err("a timestamptz as text, which no bound statement returns".into()),
        }
    }
}
