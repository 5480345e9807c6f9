//! Parsers of durations, sizes and counts.
//!
//! Ambiguous numbers are refused with an example.

use std::time::Duration;

use crate::Bytes;
use crate::format::{SIZE_UNITS, TIME_UNITS};

/// Units of a count, with their factors, from large to small.
const COUNT: [(&str, u64); 3] = [("G", 1_000_000_000), ("M", 1_000_000), ("k", 1000)];

/// Parses a duration: `500ms`, `30s`, `5m`, `2h`, `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let mut rest = text;
    let mut total = 0u64;
    let mut smallest = u64::MAX;
    while !rest.is_empty() || smallest == u64::MAX {
        let (number, unit, remainder) = split(rest);
        if number.is_empty() {
            return Err(not_a_number(rest, "30s, 500ms or 1h30m"));
        }
        if unit.is_empty() && remainder.starts_with(['.', ',']) {
            return Err(
                "fractions are not supported; write 500ms for half a second, 1m30s for a minute and a half".into()
            );
        }
        if unit.is_empty() {
            return Err(format!("a unit is missing; write {number}s for seconds, {number}ms, {number}m or {number}h"));
        }
        let Some(&(_, scale)) = TIME_UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("'{unit}' is not a unit of time; write ms, s, m, h or d, as in 30s or 1h30m"));
        };
        if scale >= smallest {
            return Err("units go from large to small, each once, as in 1h30m".into());
        }
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
        total = part.and_then(|part| total.checked_add(part)).ok_or("this is too long")?;
        smallest = scale;
        rest = remainder;
    }
    Ok(Duration::from_millis(total))
}

/// Parses a size: `4096`, `64k`, `64KiB`, `1M`, `2GiB`. Units are powers of 1024.
pub fn size(text: &str) -> Result<Bytes, String> {
    let (number, unit, remainder) = split(text);
    if number.is_empty() {
        return Err(not_a_number(text, "4096, 64KiB or 1M"));
    }
    if remainder.starts_with(['.', ',']) {
        return Err("fractions are not supported; write 1536k for one and a half MiB".into());
    }
    let plain = unit.to_ascii_lowercase();
    let scale = match (plain.as_str(), remainder) {
        ("", "") => Some(1),
        (_, "") => SIZE_UNITS
            .iter()
            .find(|(name, _)| plain == name.to_ascii_lowercase() || is_initial(&plain, name))
            .map(|unit| unit.1),
        _ => None,
    };
    let Some(scale) = scale else {
        let is_decimal = matches!(plain.as_str(), "kb" | "mb" | "gb" | "tb");
        return Err(if is_decimal && remainder.is_empty() {
            let initial = &unit[..1];
            format!(
                "'{unit}' may mean powers of 1000 or of 1024; write {number}{initial}iB or {number}{initial} for 1024"
            )
        } else {
            format!("'{unit}{remainder}' is not a unit of size; write k, M, G or T, as in 64k or 64KiB, or plain bytes")
        });
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    bytes.map(Bytes).ok_or_else(|| "this is too large".into())
}

/// Parses a count: `500000`, `64k`, `32M`. Units are powers of 1000.
pub fn count(text: &str) -> Result<u64, String> {
    let (number, unit, remainder) = split(text);
    if number.is_empty() {
        return Err(not_a_number(text, "500000, 64k or 32M"));
    }
    let scale = COUNT.iter().find(|(name, _)| unit == *name).map(|unit| unit.1);
    let Some(scale) = scale.or(unit.is_empty().then_some(1)).filter(|_| remainder.is_empty()) else {
        return Err(format!("'{unit}{remainder}' is not a unit of a count; write k, M or G, as in 32M for 32 million"));
    };
    let count = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    count.ok_or_else(|| "this is too large".into())
}

/// Splits `text` into leading digits, the letters after them, and the rest.
fn split(text: &str) -> (&str, &str, &str) {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, remainder) = text.split_at(digits);
    let letters = remainder.find(|letter: char| !letter.is_alphabetic()).unwrap_or(remainder.len());
    let (unit, remainder) = remainder.split_at(letters);
    (number, unit, remainder)
}

/// Returns true if `unit` is the first letter of the unit `name`, which has several letters.
fn is_initial(unit: &str, name: &str) -> bool {
    name.len() > 1 && unit.len() == 1 && name.to_ascii_lowercase().starts_with(unit)
}

/// Returns the error message for a `text` without a number at its start, with an example of valid text.
pub fn not_a_number(text: &str, example: &str) -> String {
    if text.is_empty() {
        format!("a number is missing; write for example {example}")
    } else {
        format!("a number is missing before '{text}'; write for example {example}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format;

    #[test]
    fn durations_have_any_units() {
        let millis = |text| duration(text).map(|duration| duration.as_millis());
        assert_eq!(millis("500ms"), Ok(500));
        assert_eq!(millis("30s"), Ok(30_000));
        assert_eq!(millis("5m"), Ok(300_000));
        assert_eq!(millis("2h"), Ok(7_200_000));
        assert_eq!(millis("1d"), Ok(86_400_000));
        assert_eq!(millis("1h30m"), Ok(5_400_000));
        assert_eq!(millis("1d2h3m4s5ms"), Ok(93_784_005));
        assert_eq!(millis("0s"), Ok(0));
    }

    #[test]
    fn malformed_duration_is_refused_with_an_example() {
        let refused = |text| duration(text).expect_err(text);
        assert_eq!(refused("30"), "a unit is missing; write 30s for seconds, 30ms, 30m or 30h");
        assert_eq!(refused("1h30"), "a unit is missing; write 30s for seconds, 30ms, 30m or 30h");
        assert_eq!(refused(""), "a number is missing; write for example 30s, 500ms or 1h30m");
        assert_eq!(refused("s"), "a number is missing before 's'; write for example 30s, 500ms or 1h30m");
        assert_eq!(refused("-5s"), "a number is missing before '-5s'; write for example 30s, 500ms or 1h30m");
        assert_eq!(refused("5s "), "a number is missing before ' '; write for example 30s, 500ms or 1h30m");
        assert!(refused("0.5s").starts_with("fractions are not supported; write 500ms"));
        assert_eq!(refused("3w"), "'w' is not a unit of time; write ms, s, m, h or d, as in 30s or 1h30m");
        assert!(refused("3µs").starts_with("'µs' is not a unit of time"));
        assert_eq!(refused("30m1h"), "units go from large to small, each once, as in 1h30m");
        assert_eq!(refused("1m1m"), "units go from large to small, each once, as in 1h30m");
        assert_eq!(refused("99999999999999999999s"), "this is too long");
        assert_eq!(refused("18446744073709551615s"), "this is too long");
        assert_eq!(refused("213503982334d99999999ms"), "this is too long");
    }

    #[test]
    fn size_units_are_binary() {
        let bytes = |text| size(text).map(|size| size.0);
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("17B"), Ok(17));
        assert_eq!(bytes("64k"), Ok(65_536));
        assert_eq!(bytes("64K"), Ok(65_536));
        assert_eq!(bytes("64KiB"), Ok(65_536));
        assert_eq!(bytes("64kib"), Ok(65_536));
        assert_eq!(bytes("1M"), Ok(1 << 20));
        assert_eq!(bytes("2GiB"), Ok(2 << 30));
        assert_eq!(bytes("3T"), Ok(3 << 40));
    }

    #[test]
    fn malformed_size_is_refused_with_an_example() {
        let refused = |text| size(text).expect_err(text);
        assert_eq!(refused(""), "a number is missing; write for example 4096, 64KiB or 1M");
        assert_eq!(refused("big"), "a number is missing before 'big'; write for example 4096, 64KiB or 1M");
        assert_eq!(refused("64KB"), "'KB' may mean powers of 1000 or of 1024; write 64KiB or 64K for 1024");
        assert!(refused("1.5M").starts_with("fractions are not supported; write 1536k"));
        assert!(refused("64x").starts_with("'x' is not a unit of size; write k, M, G or T"));
        assert!(refused("64 k").starts_with("' k' is not a unit of size"));
        assert!(refused("64k2").starts_with("'k2' is not a unit of size"));
        assert!(refused("64é").starts_with("'é' is not a unit of size"));
        assert_eq!(refused("16777216T"), "this is too large");
        assert_eq!(refused("18446744073709551616"), "this is too large");
    }

    #[test]
    fn count_units_are_decimal() {
        assert_eq!(count("500000"), Ok(500_000));
        assert_eq!(count("64k"), Ok(64_000));
        assert_eq!(count("32M"), Ok(32_000_000));
        assert_eq!(count("1G"), Ok(1_000_000_000));
        assert!(
            count("32MiB").is_err_and(|error| error.starts_with("'MiB' is not a unit of a count; write k, M or G"))
        );
        assert!(count("1.5M").is_err_and(|error| error.starts_with("'.5M' is not a unit of a count")));
        assert!(count("").is_err());
        assert!(count("99999999999G").is_err());
    }

    proptest! {
        #[test]
        fn formatted_values_parse_to_themselves(millis in 0..u64::MAX, bytes: u64) {
            prop_assert_eq!(duration(&format::duration_argument(Duration::from_millis(millis))), Ok(Duration::from_millis(millis)));
            prop_assert_eq!(size(&format::size_argument(bytes)), Ok(Bytes(bytes)));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "\\PC*") {
            let _ = (duration(&text), size(&text), count(&text));
        }
    }
}
