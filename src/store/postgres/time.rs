//! Instants as PostgreSQL sends them: microseconds since 2000, without a detour through text or floats.

use jiff::Timestamp;
use sqlx::{
    Database, Decode, Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, types::Oid},
};

const TIMESTAMPTZ: Oid = Oid(1184);
const TIMESTAMPTZ_ARRAY: Oid = Oid(1185);

/// Microseconds from 1970 to 2000.
pub(super) const EPOCH: i64 = 946_684_800_000_000;

/// A `timestamptz`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instant(pub(super) Timestamp);

impl Type<Postgres> for Instant {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ)
    }

    fn compatible(ty: &PgTypeInfo) -> bool {
        ty.oid() == Some(TIMESTAMPTZ)
    }
}

impl PgHasArrayType for Instant {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(TIMESTAMPTZ_ARRAY)
    }
}

impl Encode<'_, Postgres> for Instant {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        <i64 as Encode<'_, Postgres>>::encode(self.0.as_microsecond() - EPOCH, buffer)
    }
}

impl<'r> Decode<'r, Postgres> for Instant {
    fn decode(value: <Postgres as Database>::ValueRef<'r>) -> Result<Self, BoxDynError> {
        let micros = <i64 as Decode<'r, Postgres>>::decode(value)?;
        // Infinity and times that the calendar does not know are not ours; show the nearest.
        let unix = micros.saturating_add(EPOCH);
        let nearest = if unix < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Ok(Self(Timestamp::from_microsecond(unix).unwrap_or(nearest)))
    }
}
