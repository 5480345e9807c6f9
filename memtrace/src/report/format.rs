//! Numbers and findings in the words that people read them in, shared by the picture and the text.

use std::time::Duration;

use crate::model::{Amount, Bytes, EventClass, Measure, Metric, Nanoseconds, Profile, StackEnd};
use crate::report::options::Options;

/// `1,234,567`.
pub(super) fn grouped(number: u64) -> String {
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

/// `1 block`, `1,600 blocks`.
pub(super) fn counted(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{} {many}", grouped(number)) }
}

/// `1 block`, `1,600 pages`.
pub(super) fn blocks(class: EventClass, number: u64) -> String {
    let words = class.words();
    counted(number, words.one, words.many)
}

/// `1.50 MiB in 1,600 blocks`.
pub(super) fn amount(class: EventClass, amount: Amount) -> String {
    format!("{} in {}", amount.bytes, blocks(class, amount.count))
}

/// A value of `metric` with its unit.
pub(super) fn value(class: EventClass, metric: Metric, value: u64) -> String {
    match metric.measure() {
        Measure::Bytes => Bytes(value).to_string(),
        Measure::Count => blocks(class, value),
        Measure::Time => Nanoseconds(value).to_string(),
    }
}

/// A number in few characters: `99,999`, then `100k`, `1.23M`, by powers of 1000.
pub(super) fn compact(number: u64) -> String {
    if number < 100_000 { grouped(number) } else { scaled(number as f64, 1000.0, &["", "k", "M", "G", "T", "P", "E"]) }
}

/// Bytes in few characters: `17B`, `1.50K`, `432K`, `3.25G`, by powers of 1024.
pub(super) fn compact_bytes(bytes: Bytes) -> String {
    compact_byte_rate(bytes.0 as f64)
}

/// So many bytes a second, in as few characters.
pub(super) fn compact_byte_rate(rate: f64) -> String {
    scaled(rate, 1024.0, &["B", "K", "M", "G", "T", "P", "E"])
}

/// So many a second, in few characters: `0.05`, `12.3`, `4,711`.
pub(super) fn compact_rate(rate: f64) -> String {
    if rate == 0.0 {
        String::from("0")
    } else if rate < 999.5 {
        three_digits(rate)
    } else {
        format!("{rate:.0}").parse().map_or_else(|_| format!("{rate:.1e}"), compact)
    }
}

/// How many blocks and how many bytes a second `amount` during `time` is; `None` for no time.
pub(super) fn rates(amount: Amount, time: Duration) -> Option<(f64, f64)> {
    let seconds = time.as_secs_f64();
    (seconds > 0.0).then(|| (amount.count as f64 / seconds, amount.bytes.0 as f64 / seconds))
}

/// Three digits and a unit; the first unit has whole numbers only.
fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // What would be rounded up to the step has the next unit.
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

/// `text` with its first letter a capital.
pub(super) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A share from 0 to 1 in percent. Only nothing is `0%` and only everything is `100%`.
pub(super) fn percent(share: f64) -> String {
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

/// `0.25 s`, `30.1 s`, `2 min 5 s`, `3 h 2 min`.
pub(super) fn duration(duration: Duration) -> String {
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

/// What is drawn: `live bytes`, or `live bytes at least 30 s old` where the profile is filtered by age.
pub(super) fn what(profile: &Profile, metric: Metric) -> String {
    let title = profile.class.words().title(metric);
    match (metric, profile.older) {
        (Metric::LiveBytes | Metric::LiveCount, Some(age)) => format!("{title} at least {} old", duration(age)),
        _ => title,
    }
}

/// Why there is nothing to show.
pub(super) fn nothing(profile: &Profile, options: &Options) -> String {
    if options.metric == Metric::PeakBytes && profile.processes.iter().all(|process| process.peak.is_none()) {
        String::from("no peak was kept")
    } else {
        format!("no {}", what(profile, options.metric))
    }
}

/// How stacks ended, the `most` frequent ends first and the others as one: `98.2% complete, 1.8% truncated`; `None`
/// where there are no allocations.
pub(super) fn quality(profile: &Profile, most: usize) -> Option<String> {
    let quality = profile.quality();
    let mut shares: Vec<_> =
        StackEnd::ALL.iter().map(|&end| (quality.share(end), end.words())).filter(|(share, _)| *share > 0.0).collect();
    shares.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    if shares.len() > most {
        let others = shares.drain(most..).map(|(share, _)| share).sum();
        shares.push((others, "other"));
    }
    let shown: Vec<_> = shares.iter().map(|(share, end)| format!("{} {end}", percent(*share))).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// At most `most` characters of `text`; where it is cut, an ellipsis says so.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return String::from(text);
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// At most `most` characters of the end of `text`, which says the most of a path; where it is cut, an ellipsis says so.
pub(super) fn end_of(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return String::from(text);
    }
    ['…'].into_iter().chain(text.chars().skip(length - most.saturating_sub(1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let shown: Vec<_> = [0, 999, 1000, 123_456, 1_234_567].into_iter().map(grouped).collect();
        assert_eq!(shown, ["0", "999", "1,000", "123,456", "1,234,567"]);
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(blocks(EventClass::Heap, 1), "1 block");
        assert_eq!(blocks(EventClass::Fault, 0), "0 pages");
    }

    #[test]
    fn only_everything_is_a_hundred_percent_and_only_nothing_is_none() {
        let shown: Vec<_> = [0.0, 0.000_1, 0.001, 0.5, 0.999, 0.999_9, 1.0].into_iter().map(percent).collect();
        assert_eq!(shown, ["0%", "<0.1%", "0.1%", "50.0%", "99.9%", ">99.9%", "100%"]);
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
    fn a_cut_text_says_so() {
        assert_eq!((end_of("größe", 5), end_of("größe", 4)), ("größe".into(), "…öße".into()));
        assert_eq!(shortened("größer", 6), "größer");
        assert_eq!(shortened("größeres", 6), "größe…");
    }

    #[test]
    fn compact_numbers_have_three_digits_and_never_a_step_of_their_unit() {
        let numbers = [0, 99_999, 100_000, 999_499, 999_500, 1_234_567, u64::MAX].map(compact);
        assert_eq!(numbers, ["0", "99,999", "100k", "999k", "1.00M", "1.23M", "18.4E"]);
        let bytes = [0, 17, 1023, 1024, 1536, 102_349, 432 << 10, (1 << 20) - 1, 13 << 30, u64::MAX];
        let shown = bytes.map(|bytes| compact_bytes(Bytes(bytes)));
        assert_eq!(shown, ["0B", "17B", "1023B", "1.00K", "1.50K", "100K", "432K", "1.00M", "13.0G", "16.0E"]);
        let rates = [0.0, 0.049, 0.5, 9.996, 99.94, 99.95, 999.4, 999.5, 250_000.0].map(compact_rate);
        assert_eq!(rates, ["0", "0.05", "0.50", "10.0", "99.9", "100", "999", "1,000", "250k"]);
    }

    #[test]
    fn rates_are_told_of_some_time_only() {
        let amount = Amount { bytes: Bytes(3000), count: 10 };
        assert_eq!(rates(amount, Duration::from_millis(2500)), Some((4.0, 1200.0)));
        assert_eq!(rates(amount, Duration::ZERO), None);
    }
}
