//! Numbers of JSON for databases whose only fractions are doubles.

/// The double that a JSON number says, where it says all of its digits: `0.1` and `1e3` are doubles, a longer fraction than a
/// double tells apart is none, and an integer of more than 64 bits is none either.
pub(crate) fn exact_double(number: &str) -> Option<f64> {
    if !number.contains(['.', 'e', 'E']) {
        return None;
    }
    let double: f64 = number.parse().ok().filter(|double: &f64| double.is_finite())?;
    // The shortest digits that make this double.
    let shortest = format!("{double:e}");
    (Plain::read(number)? == Plain::read(&shortest)?).then_some(double)
}

/// The digits from the first to the last that is not zero, and the power of ten of the last one.
#[derive(PartialEq, Eq)]
struct Plain {
    is_negative: bool,
    digits: String,
    power: i64,
}

impl Plain {
    fn read(number: &str) -> Option<Self> {
        let (is_negative, rest) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_end_matches('0');
        let zeros = i64::try_from(all.len() - digits.len()).ok()?;
        let places = i64::try_from(fraction.len()).ok()?;
        let digits = digits.trim_start_matches('0').to_owned();
        let power = match digits.is_empty() {
            true => 0,
            false => exponent.checked_sub(places)?.checked_add(zeros)?,
        };
        Some(Self {
            is_negative,
            digits,
            power,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_is_taken_where_it_says_all_digits() {
        for (number, double) in [
            ("0.1", 0.1),
            ("-19.90", -19.9),
            ("1e3", 1000.0),
            ("1.0", 1.0),
            ("0.0", 0.0),
            ("2.50E-3", 0.0025),
            ("1e300", 1e300),
            ("1234567.12345678", 1_234_567.123_456_78),
            ("9007199254740993e-1", 900_719_925_474_099.3),
        ] {
            assert_eq!(exact_double(number), Some(double), "{number}");
        }
        for number in [
            "12345678901234567890",
            "12345678901234567.89",
            "0.1234567890123456789",
            "1e400",
            "1e-400",
            "1e99999999999999999999",
            "1e-99999999999999999999",
            "9007199254740993.0",
        ] {
            assert_eq!(exact_double(number), None, "{number}");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_double_is_one(bits: u64) {
            let double = f64::from_bits(bits);
            if double.is_finite() {
                proptest::prop_assert_eq!(exact_double(&format!("{double:e}")), Some(double));
            }
        }
    }
}
