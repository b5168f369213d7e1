//! Values of sql handlers, in the binary form of the parameter that the statement declares.

use sqlx::{
    Encode, Postgres, Type, TypeInfo as _,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgTypeInfo},
};

use super::super::SqlValue;

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
        value => Some(encode(ty.name(), value).ok_or_else(|| refusal(ty.name(), value, nth))?),
    };
    Ok(Bound { ty: ty.clone(), bytes })
}

fn encode(ty: &str, value: &SqlValue) -> Option<Vec<u8>> {
    Some(match ty {
        "INT2" => i16::try_from(integer(value)?).ok()?.to_be_bytes().to_vec(),
        "INT4" => i32::try_from(integer(value)?).ok()?.to_be_bytes().to_vec(),
        "INT8" => integer(value)?.to_be_bytes().to_vec(),
        #[allow(clippy::cast_possible_truncation, reason = "what a real column does to any value")]
        "FLOAT4" => (float(value)? as f32).to_be_bytes().to_vec(),
        "FLOAT8" => float(value)?.to_be_bytes().to_vec(),
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
        SqlValue::Float(float) if float.fract() == 0.0 && float.abs() < (1_i64 << 53) as f64 => Some(*float as i64),
        SqlValue::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

#[allow(clippy::cast_precision_loss, reason = "the column is of this precision")]
fn float(value: &SqlValue) -> Option<f64> {
    match value {
        SqlValue::Int(int) => Some(*int as f64),
        SqlValue::Float(float) => Some(*float),
        SqlValue::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn boolean(value: &SqlValue) -> Option<bool> {
    match value {
        SqlValue::Bool(bool) => Some(*bool),
        SqlValue::Int(0) => Some(false),
        SqlValue::Int(1) => Some(true),
        SqlValue::Text(text) => text.trim().parse().ok(),
        _ => None,
    }
}

fn text(value: &SqlValue) -> Option<String> {
    match value {
        SqlValue::Bool(bool) => Some(bool.to_string()),
        SqlValue::Int(int) => Some(int.to_string()),
        SqlValue::Float(float) => Some(float.to_string()),
        SqlValue::Text(text) => Some(text.clone()),
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
        SqlValue::Int(_) => "an integer",
        SqlValue::Float(_) => "a number",
        SqlValue::Text(_) => "a text",
        SqlValue::Bytes(_) => "bytes",
    };
    let ty = ty.to_ascii_lowercase();
    format!("parameter ${nth} is of type {ty} and cannot take {kind}; perhaps write ${nth}::text::{ty}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_take_the_form_of_the_parameter() {
        let text = |t: &str| SqlValue::Text(t.to_owned());
        assert_eq!(encode("INT2", &text("7")), Some(vec![0, 7]));
        assert_eq!(encode("INT4", &SqlValue::Float(2.0)), Some(vec![0, 0, 0, 2]));
        assert_eq!(encode("INT4", &SqlValue::Float(2.5)), None);
        assert_eq!(encode("INT2", &SqlValue::Int(70_000)), None);
        assert_eq!(encode("BOOL", &text("true")), Some(vec![1]));
        assert_eq!(encode("JSONB", &text("{}")), Some(b"\x01{}".to_vec()));
        assert_eq!(encode("NUMERIC", &SqlValue::Int(1)), None);
        assert!(refusal("NUMERIC", &SqlValue::Int(1), 2).contains("$2::text::numeric"));
    }
}
