//! Operations whose result can be far larger than what they are given, kept within bounds. A few dozen doublings would take the
//! memory of the machine, and the values may come from the payload.

use jaq_core::{Error, ValR};
use jaq_json::{Num, Val};

use super::{MAX_OUTPUT, guard::STEPS, read, to_text};

/// Bits of an integer: about ten thousand digits.
const LONGEST_INTEGER: u64 = 1 << 15;

pub(super) fn sum(left: Val, right: Val) -> ValR<Val> {
    match (&left, &right) {
        (Val::TStr(a), Val::TStr(b)) | (Val::BStr(a), Val::BStr(b)) if a.len() + b.len() > MAX_OUTPUT => {
            Err(Error::str("a string grows too long"))
        }
        // More than a filter can go through.
        (Val::Arr(a), Val::Arr(b)) if (a.len() + b.len()) as u64 > STEPS => Err(Error::str("an array grows too long")),
        _ => left + right,
    }
}

pub(super) fn product(left: Val, right: Val) -> ValR<Val> {
    let problem = match (&left, &right) {
        (Val::TStr(text) | Val::BStr(text), Val::Num(times)) | (Val::Num(times), Val::TStr(text) | Val::BStr(text)) => {
            let is_too_long = match times {
                Num::Int(times) => {
                    usize::try_from(*times).is_ok_and(|times| text.len().saturating_mul(times) > MAX_OUTPUT)
                }
                Num::BigInt(_) => !text.is_empty(),
                _ => false,
            };
            is_too_long.then_some("a string is repeated too often")
        }
        (Val::Num(Num::BigInt(a)), Val::Num(Num::BigInt(b))) => {
            (a.bits() + b.bits() > LONGEST_INTEGER).then_some("an integer grows too long")
        }
        (Val::Num(Num::BigInt(a)), _) | (_, Val::Num(Num::BigInt(a))) => {
            (a.bits() > LONGEST_INTEGER).then_some("an integer grows too long")
        }
        _ => None,
    };
    match problem {
        Some(problem) => Err(Error::str(problem)),
        None => left * right,
    }
}

/// What stands for a value within a text.
pub(super) fn text(value: Val) -> ValR<Val> {
    match value {
        Val::TStr(_) | Val::BStr(_) => Ok(value),
        value => json(&value),
    }
}

/// A value as JSON: within what a filter may give, because parts of it may be the same many times over.
pub(super) fn json(value: &Val) -> ValR<Val> {
    to_text(value).map(Val::utf8_str).map_err(Error::str)
}

/// One value, strict JSON, with the limits of a payload.
pub(super) fn parsed(value: &Val) -> ValR<Val> {
    match value {
        Val::TStr(text) | Val::BStr(text) => {
            read(text).map_err(|error| Error::str(format_args!("a text is not JSON: {error}")))
        }
        _ => Err(Error::str("only a text can be read as JSON")),
    }
}
