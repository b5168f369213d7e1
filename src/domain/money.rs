//! Amounts of money as text, made whole numbers of minor units. Digits are moved, nothing is ever a float.

/// Currencies of ISO 4217 whose minor unit is not a hundredth, by number of decimals.
const OTHER_DECIMALS: [(u32, &str); 3] = [
    (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
    (3, "BHD IQD JOD KWD LYD OMR TND"),
    (4, "CLF UYW"),
];

const TWO_DECIMALS: &str = "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BOV BRL BSD BTN BWP BYN \
    BZD CAD CDF CHE CHF CHW CNY COP COU CRC CUC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ \
    GYD HKD HNL HRK HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP \
    MRU MUR MVR MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK \
    SGD SHP SLE SLL SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XCD XCG \
    YER ZAR ZMW ZWG ZWL";

/// Digits that an amount may have: more than any `i64`, so that nothing that fits is lost, and no text costs more.
const MAX_DIGITS: usize = 40;

/// How many decimals the major unit of a currency has in ISO 4217; `None` where the code is not of that list.
pub(crate) fn decimals(currency: &str) -> Option<u32> {
    let listed = |list: &str| list.split_ascii_whitespace().any(|code| code == currency);
    OTHER_DECIMALS
        .iter()
        .find(|(_, list)| listed(list))
        .map(|(decimals, _)| *decimals)
        .or_else(|| listed(TWO_DECIMALS).then_some(2))
}

/// The number that a decimal text writes, times ten to the power of `shift`. `None` where the text is no JSON number,
/// the result is not whole, or it is no `i64`: an amount is exact or there is none.
pub(crate) fn scaled(text: &str, shift: i32) -> Option<i64> {
    let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, small(exponent)?),
        None => (rest, 0),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (mantissa, ""),
    };
    let plain = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(fraction) {
        return None;
    }
    let mut digits = format!("{whole}{fraction}").trim_start_matches('0').to_owned();
    let mut places = shift
        .checked_add(exponent)?
        .checked_sub(i32::try_from(fraction.len()).ok()?)?;
    while places < 0 && digits.ends_with('0') {
        digits.pop();
        places += 1;
    }
    if digits.is_empty() {
        return Some(0);
    }
    let places = usize::try_from(places).ok()?;
    if digits.len().checked_add(places)? > MAX_DIGITS {
        return None;
    }
    digits.extend(std::iter::repeat_n('0', places));
    let sign = if negative { "-" } else { "" };
    format!("{sign}{digits}").parse().ok()
}

/// An exponent of at most three digits.
fn small(text: &str) -> Option<i32> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let plain = (1..=3).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let value: i32 = digits.parse().ok().filter(|_| plain)?;
    Some(if text.starts_with('-') { -value } else { value })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn currencies_have_their_decimals() {
        for (code, expected) in [
            ("BRL", Some(2)),
            ("EUR", Some(2)),
            ("JPY", Some(0)),
            ("KWD", Some(3)),
            ("CLF", Some(4)),
            ("BTC", None),
            ("brl", None),
            ("", None),
            ("BRL USD", None),
        ] {
            assert_eq!(decimals(code), expected, "{code}");
        }
    }

    #[test]
    fn decimals_become_whole_numbers_exactly_or_not_at_all() {
        for (text, shift, expected) in [
            ("150.6", 2, Some(15_060)),
            ("100.50", 2, Some(10_050)),
            ("0.29", 2, Some(29)),
            ("1.10", 1, Some(11)),
            ("-0.01", 2, Some(-1)),
            ("0", 2, Some(0)),
            ("0.00", 0, Some(0)),
            ("12.500", 2, Some(1250)),
            ("12.505", 2, None),
            ("1.234", 3, Some(1234)),
            ("1e2", 0, Some(100)),
            ("1.5E+1", 2, Some(1500)),
            ("1500e-2", 0, Some(15)),
            ("500", -2, Some(5)),
            ("501", -2, None),
            ("9223372036854775807", 0, Some(i64::MAX)),
            ("92233720368547758.07", 2, Some(i64::MAX)),
            ("-9223372036854775808", 0, Some(i64::MIN)),
            ("9223372036854775808", 0, None),
            ("1e99", 0, None),
            ("0e999", 0, Some(0)),
            ("00012.00", 0, Some(12)),
        ] {
            assert_eq!(scaled(text, shift), expected, "{text} {shift}");
        }
        for nonsense in [
            "", "-", ".", "1.", ".5", "+1", "1,00", "R$ 1", "1e", "1e1234", "0x1", "--1", "NaN", "1.2.3", "１",
            "1e--2", " 1",
        ] {
            assert_eq!(scaled(nonsense, 2), None, "{nonsense}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_what_is_read(value in any::<i64>(), places in 0..6_usize) {
            let digits = format!("{:0>1$}", value.unsigned_abs(), places + 1);
            let (whole, fraction) = digits.split_at(digits.len() - places);
            let point = if fraction.is_empty() { "" } else { "." };
            let text = format!("{}{whole}{point}{fraction}", if value < 0 { "-" } else { "" });
            prop_assert_eq!(scaled(&text, i32::try_from(places).unwrap()), Some(value));
        }

        #[test]
        fn any_text_is_an_amount_or_none(text in "[-+0-9.eE]{0,30}", shift in any::<i32>()) {
            let _ = scaled(&text, shift);
        }
    }
}
