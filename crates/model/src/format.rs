//! Formats of numbers in every output: sizes, counts, rates, times and percentages.

use std::cmp::Reverse;
use std::time::Duration;

/// Units of time in arguments, with their length in milliseconds, from large to small.
pub(crate) const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Units of size in arguments, with their number of bytes, from large to small.
pub(crate) const SIZE_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Formats bytes with a binary unit: `17 B`, `1.50 KiB`, `3.25 GiB`.
pub fn bytes(bytes: u64) -> String {
    two_decimals(bytes, 1024, &["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"])
}

/// Formats a time with its unit: `17 ns`, `1.50 µs`, `3.25 s`.
pub fn nanoseconds(nanoseconds: u64) -> String {
    two_decimals(nanoseconds, 1000, &["ns", "µs", "ms", "s"])
}

/// Formats a duration. Shorter ones have more decimals: `0.25 s`, `30.1 s`, `2 min 5 s`, `3 h 2 min`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 60.0 {
        let text = if seconds < 10.0 { format!("{seconds:.3}") } else { format!("{seconds:.1}") };
        return format!("{} s", text.trim_end_matches('0').trim_end_matches('.'));
    }
    let whole = duration.as_secs() + u64::from(duration.subsec_millis() >= 500);
    let parts = [(whole / 3600, "h"), (whole / 60 % 60, "min"), (whole % 60, "s")];
    let shown: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n} {unit}")).collect();
    shown.join(" ")
}

/// Formats a duration below one second with at most three digits, as `1.5 µs` or `100 ms`, and others as [`duration`]
/// does.
pub fn short(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    let (unit, name) = match nanoseconds {
        0..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..1_000_000_000 => (1_000_000, "ms"),
        _ => return duration(time),
    };
    let text = three_digits(nanoseconds as f64 / f64::from(unit));
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {name}")
}

/// Formats a duration as on a clock: `0:07`, `12:30`, `1:00:00`.
pub fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Formats a duration in the syntax of arguments: `1h30m`, `500ms`. It is rounded down to milliseconds.
pub fn duration_argument(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut shown = String::new();
    for (name, scale) in TIME_UNITS {
        if rest >= scale {
            shown += &format!("{}{name}", rest / scale);
            rest %= scale;
        }
    }
    if shown.is_empty() { "0s".into() } else { shown }
}

/// Formats a size in the syntax of arguments, without rounding: `64KiB`, `4097`.
pub fn size_argument(bytes: u64) -> String {
    let fits = |scale: u64| bytes >= scale && bytes.is_multiple_of(scale);
    match SIZE_UNITS.iter().find(|(name, scale)| *name != "B" && fits(*scale)) {
        Some((name, scale)) => format!("{}{name}", bytes / scale),
        None => bytes.to_string(),
    }
}

/// Formats a number with its digits in groups: `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with its noun: `1 block`, `1,600 blocks`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{} {many}", grouped(number)) }
}

/// Formats a list of names: the first `most` of them, and the number of the others: `a, b, 3 more`.
pub fn limited_list(names: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let others = names.len().saturating_sub(most);
    let mut shown: Vec<_> = names.take(most).collect();
    if others > 0 {
        shown.push(format!("{others} more"));
    }
    shown.join(", ")
}

/// Formats a number for a table: up to `99,999`, then `100k`, `1.23M`, by powers of 1000.
pub fn compact(number: u64) -> String {
    if number < 100_000 { grouped(number) } else { compact_decimal(number as f64) }
}

/// Formats a number in at most three digits and a decimal unit: `999`, `12.3k`, `5.10M`.
pub fn compact_decimal(number: f64) -> String {
    three_digits_and_unit(number, 1000.0, &["", "k", "M", "G", "T", "P", "E"])
}

/// Formats bytes, or bytes per second, for a table: `17B`, `1.50K`, `432K`, `3.25G`, by powers of 1024.
pub fn compact_bytes(bytes: f64) -> String {
    three_digits_and_unit(bytes, 1024.0, &["B", "K", "M", "G", "T", "P", "E"])
}

/// Formats a rate for a table: `0.05`, `12.3`, `4,711`.
pub fn compact_rate(rate: f64) -> String {
    if rate == 0.0 {
        String::from("0")
    } else if rate < 999.5 {
        three_digits(rate)
    } else {
        format!("{rate:.0}").parse().map_or_else(|_| format!("{rate:.1e}"), compact)
    }
}

/// Formats a share from 0 to 1 in percent. Only 0 is written `0%` and only 1 is written `100%`.
pub fn percent(share: f64) -> String {
    if share <= 0.0 {
        String::from("0%")
    } else if share >= 1.0 {
        String::from("100%")
    } else if share < 0.001 {
        String::from("<0.1%")
    } else if share > 0.999 {
        String::from(">99.9%")
    } else {
        format!("{:.1}%", share * 100.0)
    }
}

/// Formats the shares of parts of a whole in percent, so that they add up to 100 %. All shares are rounded down to a tenth.
/// Then the shares with the largest remainders are raised by a tenth each, until the sum is 100 %.
pub fn percents<const N: usize>(parts: [u64; N]) -> [String; N] {
    const WHOLE: u128 = 1000;
    let sum = parts.iter().map(|&part| u128::from(part)).sum::<u128>().max(1);
    let mut tenths = parts.map(|part| u128::from(part) * WHOLE / sum);
    let mut order: [usize; N] = std::array::from_fn(|index| index);
    order.sort_by_key(|&index| Reverse(u128::from(parts[index]) * WHOLE % sum));
    let missing = WHOLE.saturating_sub(tenths.iter().sum::<u128>());
    for (&index, _) in order.iter().zip(0..missing).filter(|(index, _)| parts[**index] > 0) {
        tenths[index] += 1;
    }
    std::array::from_fn(|index| match tenths[index] {
        0 if parts[index] == 0 => String::from("0%"),
        0 => String::from("<0.1%"),
        WHOLE if u128::from(parts[index]) == sum => String::from("100%"),
        WHOLE => String::from(">99.9%"),
        tenths => format!("{}.{}%", tenths / 10, tenths % 10),
    })
}

/// Formats an estimated share in percent. The share may exceed 1: `2.3 %`, `140 %`.
pub fn rough_percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent < 10.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// Formats a number with two decimals and a unit. Numbers in the first unit have no decimals.
fn two_decimals(number: u64, step: u64, units: &[&str]) -> String {
    if number < step {
        return format!("{number} {}", units[0]);
    }
    let step = step as f64;
    let (mut scaled, mut unit) = (number as f64 / step, 1);
    // If rounding would reach the step, the number gets the next unit.
    while scaled >= step - 0.005 && unit + 1 < units.len() {
        scaled /= step;
        unit += 1;
    }
    format!("{scaled:.2} {}", units[unit])
}

/// Formats a number with three digits and a unit. Numbers in the first unit have no decimals.
fn three_digits_and_unit(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // If rounding would reach the step, the number gets the next unit.
    while value >= step - 0.5 && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let digits = if unit == 0 { format!("{value:.0}") } else { three_digits(value) };
    format!("{digits}{}", units[unit])
}

fn three_digits(value: f64) -> String {
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_end_with_a_number() {
        let list = |count: u32| limited_list((0..count).map(|number| number.to_string()), 2);
        assert_eq!([0, 1, 2, 3, 5].map(list), ["", "0", "0, 1", "0, 1, 1 more", "0, 1, 3 more"]);
    }

    #[test]
    fn short_durations_have_three_digits() {
        let shown = |nanoseconds| short(Duration::from_nanos(nanoseconds));
        assert_eq!([0, 999, 1500, 319_414_000].map(shown), ["0 ns", "999 ns", "1.5 µs", "319 ms"]);
        assert_eq!([100_000_000, 1_003_000_000, 125_000_000_000].map(shown), ["100 ms", "1.003 s", "2 min 5 s"]);
    }

    #[test]
    fn bytes_have_a_binary_unit_and_two_decimals() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(1536), "1.50 KiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.00 MiB");
        assert_eq!(bytes(3 << 30), "3.00 GiB");
        assert_eq!(bytes(u64::MAX), "16.00 EiB");
    }

    #[test]
    fn nanoseconds_have_a_unit_and_two_decimals() {
        assert_eq!(nanoseconds(0), "0 ns");
        assert_eq!(nanoseconds(999), "999 ns");
        assert_eq!(nanoseconds(1500), "1.50 µs");
        assert_eq!(nanoseconds(999_995), "1.00 ms");
        assert_eq!(nanoseconds(61_000_000_000), "61.00 s");
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let shown: Vec<_> = [0, 999, 1000, 123_456, 1_234_567].into_iter().map(grouped).collect();
        assert_eq!(shown, ["0", "999", "1,000", "123,456", "1,234,567"]);
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(counted(1, "block", "blocks"), "1 block");
        assert_eq!(counted(0, "page", "pages"), "0 pages");
    }

    #[test]
    fn only_0_and_1_are_written_as_0_and_100_percent() {
        let shown: Vec<_> = [0.0, 0.000_1, 0.001, 0.5, 0.999, 0.999_9, 1.0].into_iter().map(percent).collect();
        assert_eq!(shown, ["0%", "<0.1%", "0.1%", "50.0%", "99.9%", ">99.9%", "100%"]);
    }

    #[test]
    fn percents_add_up_to_the_whole() {
        assert_eq!(percents([1, 1, 1]), ["33.4%", "33.3%", "33.3%"]);
        assert_eq!(percents([2, 2, 2, 1]), ["28.6%", "28.6%", "28.5%", "14.3%"]);
        assert_eq!(percents([0, 7]), ["0%", "100%"]);
        assert_eq!(percents([99_999, 1]), [">99.9%", "<0.1%"]);
        assert_eq!(percents([0, 0]), ["0%", "0%"]);
        assert_eq!(percents([u64::MAX, u64::MAX]), ["50.0%", "50.0%"]);
    }

    #[test]
    fn durations_are_as_fine_as_they_are_short() {
        let shown = |millis| duration(Duration::from_millis(millis));
        assert_eq!(shown(0), "0 s");
        assert_eq!(shown(250), "0.25 s");
        assert_eq!(shown(30_000), "30 s");
        assert_eq!(shown(30_149), "30.1 s");
        assert_eq!(shown(60_000), "1 min");
        assert_eq!(shown(119_600), "2 min");
        assert_eq!(shown(3_661_000), "1 h 1 min 1 s");
    }

    #[test]
    fn time_is_shown_as_on_a_clock() {
        let shown = |seconds| clock(Duration::from_secs(seconds));
        assert_eq!(shown(0), "0:00");
        assert_eq!(shown(59), "0:59");
        assert_eq!(shown(750), "12:30");
        assert_eq!(shown(3600), "1:00:00");
        assert_eq!(shown(100 * 3600 + 61), "100:01:01");
    }

    #[test]
    fn compact_numbers_have_three_digits_and_carry_units() {
        let numbers = [0, 99_999, 100_000, 999_499, 999_500, 1_234_567, u64::MAX].map(compact);
        assert_eq!(numbers, ["0", "99,999", "100k", "999k", "1.00M", "1.23M", "18.4E"]);
        let bytes = [0, 17, 1023, 1024, 1536, 102_349, 432 << 10, (1 << 20) - 1, 13 << 30, u64::MAX];
        let shown = bytes.map(|bytes| compact_bytes(bytes as f64));
        assert_eq!(shown, ["0B", "17B", "1023B", "1.00K", "1.50K", "100K", "432K", "1.00M", "13.0G", "16.0E"]);
        let rates = [0.0, 0.049, 0.5, 9.996, 99.94, 99.95, 999.4, 999.5, 250_000.0].map(compact_rate);
        assert_eq!(rates, ["0", "0.05", "0.50", "10.0", "99.9", "100", "999", "1,000", "250k"]);
    }

    #[test]
    fn decimal_numbers_have_three_digits() {
        let numbers = [0.0, 999.4, 999.5, 9_996.0, 99_960.0, 999_499.0, 5_100_000.0].map(compact_decimal);
        assert_eq!(numbers, ["0", "999", "1.00k", "10.0k", "100k", "999k", "5.10M"]);
    }
}
