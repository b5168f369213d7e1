//! Values of sql handlers, in the binary form of the parameter that the statement declares.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use sqlx::{
    Encode, Postgres, Type, TypeInfo as _,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgTypeInfo, PgTypeKind},
    types::{BigDecimal, Uuid},
};

use super::{super::SqlValue, time::EPOCH};

/// A day in microseconds.
const DAY: i64 = 86_400_000_000;

/// A value that is encoded already.
#[derive(Debug)]
pub(super) struct Bound {
    ty: PgTypeInfo,
    bytes: Option<Vec<u8>>,
}

impl Type<Postgres> for Bound {
    fn type_info() -> PgTypeInfo {
        <str as Type<Postgres>>::type_info()
    }

    fn compatible(_: &PgTypeInfo) -> bool {
        true
    }
}

impl Encode<'_, Postgres> for Bound {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let Some(bytes) = &self.bytes else {
            return Ok(IsNull::Yes);
        };
        buffer.extend_from_slice(bytes);
        Ok(IsNull::No)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(self.ty.clone())
    }
}

/// Converts a value to the type of parameter number `nth` (from 1).
///
/// # Errors
/// Says which parameter cannot take the value, and what to write instead.
pub(super) fn bind(ty: &PgTypeInfo, value: &SqlValue, nth: usize) -> Result<Bound, String> {
    let bytes = match value {
        SqlValue::Null => None,
        value => Some(encode(base(ty), value).ok_or_else(|| refusal(ty.name(), value, nth))?),
    };
    Ok(Bound { ty: ty.clone(), bytes })
}

/// The name of the type below domains; the labels of an enum are text.
fn base(ty: &PgTypeInfo) -> &str {
    match ty.kind() {
        PgTypeKind::Domain(inner) => base(inner),
        PgTypeKind::Enum(_) => "TEXT",
        _ => ty.name(),
    }
}

fn encode(ty: &str, value: &SqlValue) -> Option<Vec<u8>> {
    Some(match ty {
        "INT2" => i16::try_from(integer(value)?).ok()?.to_be_bytes().to_vec(),
        "INT4" => i32::try_from(integer(value)?).ok()?.to_be_bytes().to_vec(),
        "INT8" => integer(value)?.to_be_bytes().to_vec(),
        #[allow(clippy::cast_possible_truncation, reason = "what a real column does to any value")]
        "FLOAT4" => (float(value)? as f32).to_be_bytes().to_vec(),
        "FLOAT8" => float(value)?.to_be_bytes().to_vec(),
        "NUMERIC" => numeric(value)?,
        "UUID" => Uuid::parse_str(trimmed(value)?).ok()?.as_bytes().to_vec(),
        "TIMESTAMPTZ" | "TIMESTAMP" => (instant(trimmed(value)?)?.as_microsecond() - EPOCH)
            .to_be_bytes()
            .to_vec(),
        "DATE" => {
            let days = (instant(trimmed(value)?)?.as_microsecond() - EPOCH).div_euclid(DAY);
            i32::try_from(days).ok()?.to_be_bytes().to_vec()
        }
        "BOOL" => vec![u8::from(boolean(value)?)],
        "TEXT" | "VARCHAR" | "CHAR" | "BPCHAR" | "NAME" | "UNKNOWN" | "CITEXT" | "citext" => text(value)?.into_bytes(),
        "JSON" => json(value)?.into_bytes(),
        // One byte of version before the text.
        "JSONB" => [&[1], json(value)?.as_bytes()].concat(),
        "BYTEA" => match value {
            SqlValue::Bytes(bytes) => bytes.to_vec(),
            SqlValue::Text(text) => text.clone().into_bytes(),
            _ => return None,
        },
        _ => return None,
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "whole and in range, as checked"
)]
fn integer(value: &SqlValue) -> Option<i64> {
    match value {
        SqlValue::Int(int) => Some(*int),
        SqlValue::Number(text) | SqlValue::Text(text) => text.trim().parse().ok().or_else(|| {
            // `1e3` and `2.0` are integers too.
            let float: f64 = text.trim().parse().ok()?;
            (float.fract() == 0.0 && float.abs() < (1_i64 << 53) as f64).then_some(float as i64)
        }),
        _ => None,
    }
}

/// The exact number. Longer ones than this take long to convert, and can be cast by the server.
fn numeric(value: &SqlValue) -> Option<Vec<u8>> {
    const LONGEST: usize = 10_000;
    let number = match value {
        SqlValue::Int(int) => BigDecimal::from(*int),
        SqlValue::Number(text) | SqlValue::Text(text) if text.len() <= LONGEST => text.trim().parse().ok()?,
        _ => return None,
    };
    let mut buffer = PgArgumentBuffer::default();
    let _ = number.encode_by_ref(&mut buffer).ok()?;
    Some(buffer.to_vec())
}

fn trimmed(value: &SqlValue) -> Option<&str> {
    match value {
        SqlValue::Text(text) => Some(text.trim()),
        _ => None,
    }
}

/// RFC 3339, or a date with or without a time, which is one of UTC.
fn instant(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| {
        let local: DateTime = text.parse().ok()?;
        TimeZone::UTC.to_timestamp(local).ok()
    })
}

#[allow(clippy::cast_precision_loss, reason = "the column is of this precision")]
fn float(value: &SqlValue) -> Option<f64> {
    match value {
        SqlValue::Int(int) => Some(*int as f64),
        SqlValue::Number(text) | SqlValue::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn boolean(value: &SqlValue) -> Option<bool> {
    match value {
        SqlValue::Bool(bool) => Some(*bool),
        SqlValue::Int(0) => Some(false),
        SqlValue::Int(1) => Some(true),
        SqlValue::Text(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "t" | "1" => Some(true),
            "false" | "f" | "0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn text(value: &SqlValue) -> Option<String> {
    match value {
        SqlValue::Bool(bool) => Some(bool.to_string()),
        SqlValue::Int(int) => Some(int.to_string()),
        SqlValue::Number(text) | SqlValue::Text(text) => Some(text.clone()),
        SqlValue::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        SqlValue::Null => None,
    }
}

/// A text is JSON as it stands; so is a number or a truth value.
fn json(value: &SqlValue) -> Option<String> {
    text(value)
}

fn refusal(ty: &str, value: &SqlValue, nth: usize) -> String {
    let kind = match value {
        SqlValue::Null => "null",
        SqlValue::Bool(_) => "a boolean",
        SqlValue::Int(_) => "this integer",
        SqlValue::Number(_) => "this number",
        SqlValue::Text(_) => "this text",
        SqlValue::Bytes(_) => "bytes",
    };
    let ty = ty.to_ascii_lowercase();
    format!("parameter ${nth} is of type {ty} and cannot take {kind}; a cast can help: ${nth}::text::{ty}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_the_form_of_the_parameter() {
        let text = |t: &str| SqlValue::Text(t.to_owned());
        assert_eq!(encode("INT2", &text("7")), Some(vec![0, 7]));
        assert_eq!(encode("INT4", &SqlValue::Number("2.0".into())), Some(vec![0, 0, 0, 2]));
        assert_eq!(encode("INT4", &SqlValue::Number("2.5".into())), None);
        assert_eq!(encode("INT2", &SqlValue::Int(70_000)), None);
        assert_eq!(encode("BOOL", &text("true")), Some(vec![1]));
        assert_eq!(encode("JSONB", &text("{}")), Some(b"\x01{}".to_vec()));
        assert_eq!(encode("NUMERIC", &text("1,5")), None);
        assert_eq!(encode("NUMERIC", &SqlValue::Number("1e999999999".into())), None);
        assert_eq!(encode("DATE", &text("2000-01-02")), Some(vec![0, 0, 0, 1]));
        assert_eq!(encode("DATE", &text("1999-12-31T23:00:00Z")), Some(vec![255; 4]));
        assert_eq!(encode("TIMESTAMPTZ", &text("soon")), None);
        assert_eq!(encode("TEXT", &SqlValue::Number("1.0".into())), Some(b"1.0".to_vec()));
        assert!(refusal("NUMERIC", &SqlValue::Int(1), 2).contains("$2::text::numeric"));
    }
}
