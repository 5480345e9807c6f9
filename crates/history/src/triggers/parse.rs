//! Parser of conditions: `[SUBJECT.]FIELD OP LIMIT[/PERIOD]`.

use std::str::FromStr;

use memtrace_model::{closest, parse};

use super::condition::{Comparison, Condition, Period};
use super::error::ConditionError;
use super::field::{FIELDS, Field, Unit, field, names_of, subjects_with};
use super::subject::Subject;

impl FromStr for Condition {
    type Err = ConditionError;

    /// Parses a condition: `net > 1GiB/min`, `thread.cpu >= 90%`, `machine.pressure > 20%`.
    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let (left, comparison, right) = split(text)?;
        let (subject, field) = subject_and_field(left)?;
        let (limit, period) = match right.split_once('/') {
            Some((limit, period)) => (limit.trim(), Some(parse_period(field, period.trim())?)),
            None => (right, None),
        };
        let limit = parse_limit(field, limit)?;
        Ok(Self { subject, field, comparison, limit, period })
    }
}

/// Splits a condition at its operator.
fn split(text: &str) -> Result<(&str, Comparison, &str), ConditionError> {
    let remedy = "write a field, one of > >= < <= and a limit, as in 'rss > 2GiB' or 'net > 1GiB/min'";
    let missing = |part| ConditionError::new(format!("the condition '{text}' has no {part}"), remedy);
    let place = text.find(['<', '>']).ok_or_else(|| missing("comparison"))?;
    let (left, rest) = text.split_at(place);
    let (comparison, right) = [Comparison::AtLeast, Comparison::AtMost, Comparison::Above, Comparison::Below]
        .into_iter()
        .find_map(|comparison| Some((comparison, rest.strip_prefix(comparison.operator())?)))
        .ok_or_else(|| missing("comparison"))?;
    let (left, right) = (left.trim(), right.trim());
    if left.is_empty() {
        return Err(missing("field"));
    }
    if right.is_empty() {
        return Err(missing("limit"));
    }
    if left.ends_with('=') || right.starts_with(['<', '>', '=']) {
        return Err(missing("valid comparison"));
    }
    Ok((left, comparison, right))
}

fn subject_and_field(text: &str) -> Result<(Subject, &'static Field), ConditionError> {
    let (subject, name) = match text.split_once('.') {
        Some((subject, name)) => (Some(parse_subject(subject.trim())?), name.trim()),
        None => (None, text),
    };
    let default = subjects_with(name).next().ok_or_else(|| unknown_field(name))?;
    let subject = subject.unwrap_or(default);
    let field = field(subject, name).ok_or_else(|| {
        let others: Vec<_> = subjects_with(name).map(|other| format!("{}.{name}", other.name())).collect();
        let own = listed(names_of(subject));
        ConditionError::new(
            format!("a {} has no field '{name}'", subject.name()),
            format!("write {}, or one of the fields of a {}: {own}", others.join(" or "), subject.name()),
        )
    })?;
    Ok((subject, field))
}

fn parse_subject(name: &str) -> Result<Subject, ConditionError> {
    Subject::ALL.into_iter().find(|subject| subject.name() == name).ok_or_else(|| {
        let names = listed(Subject::ALL.into_iter().map(Subject::name));
        ConditionError::new(
            format!("unknown subject '{name}'"),
            format!("write one of {names} before the dot, as in 'thread.net > 1GiB/min'"),
        )
    })
}

fn unknown_field(name: &str) -> ConditionError {
    let fields: Vec<_> =
        Subject::ALL.into_iter().map(|subject| format!("{} ({})", listed(names_of(subject)), subject.name())).collect();
    let advice = closest(name, FIELDS.iter().map(|field| field.name))
        .map_or(String::from("write one of the fields"), |name| format!("write '{name}' or another field"));
    ConditionError::new(format!("unknown field '{name}'"), format!("{advice}: {}", fields.join("; ")))
}

fn parse_period(field: &Field, text: &str) -> Result<Period, ConditionError> {
    let name = field.name;
    if !field.is_sum {
        return Err(ConditionError::new(
            format!("'{name}' is compared at the end of each interval and has no period"),
            format!("leave out '/{text}'"),
        ));
    }
    // Durations in other arguments abbreviate a minute to `m`.
    let period = Period::ALL.into_iter().find(|period| period.name() == text);
    period.or((text == "m").then_some(Period::Minute)).ok_or_else(|| {
        let periods = listed(Period::ALL.into_iter().map(Period::name));
        ConditionError::new(
            format!("unknown period '{text}'"),
            format!("write one of {periods}, as in '{name} > 10/min'"),
        )
    })
}

/// Returns the limit in the unit of the field.
fn parse_limit(field: &Field, text: &str) -> Result<i64, ConditionError> {
    let refuse = |reason: String| {
        let example = match field.unit {
            Unit::Bytes | Unit::SignedBytes => "a size, as in 64KiB or 2GiB",
            Unit::Number => "a number, as in 500 or 64k",
            Unit::Percent => "a percentage, as in 20% or 0.5%",
        };
        let message = format!("the limit '{text}' of '{}' is not valid: {reason}", field.name);
        ConditionError::new(message, format!("write {example}"))
    };
    let positive = |text| match field.unit {
        Unit::Bytes | Unit::SignedBytes => parse::size(text).map(|size| size.0),
        Unit::Number => parse::count(text),
        Unit::Percent => parse_percent(text),
    };
    let (sign, size) = match (field.unit, text.strip_prefix('-')) {
        (Unit::SignedBytes, Some(size)) => (-1, size),
        _ => (1, text),
    };
    let size = positive(size).map_err(refuse)?;
    i64::try_from(size).map(|size| sign * size).map_err(|_| refuse("this is too large".into()))
}

/// Returns a percentage in thousandths of a percent.
fn parse_percent(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('%').ok_or("the percent sign is missing")?.trim_end();
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) {
        return Err("this is not a number".into());
    }
    if decimals.len() > 3 {
        return Err("there are more than three decimals".into());
    }
    format!("{whole}{decimals:0<3}").parse().map_err(|_| "this is too large".into())
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(text: &str) -> (Subject, &'static str, Comparison, i64, Option<Period>) {
        let condition: Condition = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        (condition.subject, condition.field.name, condition.comparison, condition.limit, condition.period)
    }

    fn refused(text: &str) -> (String, String) {
        let error = text.parse::<Condition>().expect_err(text);
        (error.message, error.remedy)
    }

    #[test]
    fn conditions_have_a_field_an_operator_and_a_limit() {
        use Comparison::{Above, AtLeast, AtMost, Below};
        use Subject::{Cgroup, Machine, Process, Thread};
        let minute = Some(Period::Minute);
        assert_eq!(parsed("net > 1GiB/min"), (Process, "net", Above, 1 << 30, minute));
        assert_eq!(parsed("rss > 2GiB"), (Process, "rss", Above, 2 << 30, None));
        assert_eq!(parsed("pressure > 20%"), (Machine, "pressure", Above, 20_000, None));
        assert_eq!(parsed("  thread . net>=64k / m "), (Thread, "net", AtLeast, 65_536, minute));
        assert_eq!(parsed("net < -1MiB/h"), (Process, "net", Below, -(1 << 20), Some(Period::Hour)));
        assert_eq!(parsed("switches<=10k/s"), (Process, "switches", AtMost, 10_000, Some(Period::Second)));
        assert_eq!(parsed("cgroup.pressure>0.5%"), (Cgroup, "pressure", Above, 500, None));
        assert_eq!(parsed("machine.cpu > 99.125%"), (Machine, "cpu", Above, 99_125, None));
        assert_eq!(parsed("memory > 0"), (Cgroup, "memory", Above, 0, None));
        assert_eq!(parsed("cpu > 400%"), (Process, "cpu", Above, 400_000, None));
    }

    #[test]
    fn condition_displays_itself_canonically() {
        for (text, canonical) in [
            ("process.net>1024M/m", "net > 1GiB/min"),
            ("thread.net>=4097/s", "thread.net >= 4097/s"),
            ("net<-2048k", "net < -2MiB"),
            ("machine.pressure > 20.50%", "pressure > 20.5%"),
            ("cgroup.pressure<=7.000%", "cgroup.pressure <= 7%"),
            ("cgroup.memory > 1T", "memory > 1TiB"),
            ("machine.cpu > 0.010%", "machine.cpu > 0.01%"),
            ("descriptors > 64k", "descriptors > 64000"),
            ("major_faults > 0/h", "major_faults > 0/h"),
        ] {
            let shown = |text: &str| text.parse::<Condition>().unwrap().to_string();
            assert_eq!((shown(text), shown(canonical)), (canonical.into(), canonical.into()));
        }
    }

    #[test]
    fn unknown_field_has_a_suggestion_with_all_fields() {
        let (message, remedy) = refused("thread.nett > 1");
        assert_eq!(message, "unknown field 'nett'");
        let fields = "write 'net' or another field: net, alloc, free, major_faults, switches, read, write, cpu, \
                      run_delay, rss, swap, descriptors, threads (process); pressure, cpu_pressure, io_pressure, \
                      available, cpu (machine); memory, pressure (cgroup); net, alloc, free, major_faults, switches, \
                      read, write, cpu, run_delay (thread)";
        assert_eq!(remedy, fields);
        assert!(refused("heap > 1").1.starts_with("write one of the fields: net, alloc"));
    }

    #[test]
    fn field_of_another_subject_is_refused() {
        let (message, remedy) = refused("cgroup.cpu > 1%");
        assert_eq!(message, "a cgroup has no field 'cpu'");
        let fields =
            "write process.cpu or machine.cpu or thread.cpu, or one of the fields of a cgroup: memory, pressure";
        assert_eq!(remedy, fields);
        let (message, remedy) = refused("host.cpu > 1%");
        assert_eq!(message, "unknown subject 'host'");
        assert!(remedy.starts_with("write one of process, machine, cgroup, thread before the dot"), "{remedy}");
    }

    #[test]
    fn malformed_condition_is_refused() {
        for (text, message) in [
            ("", "the condition '' has no comparison"),
            ("rss", "the condition 'rss' has no comparison"),
            ("rss = 1", "the condition 'rss = 1' has no comparison"),
            ("rss => 1", "the condition 'rss => 1' has no valid comparison"),
            ("rss >> 1", "the condition 'rss >> 1' has no valid comparison"),
            ("> 1", "the condition '> 1' has no field"),
            ("rss >", "the condition 'rss >' has no limit"),
            ("rss > 1GiB/min", "'rss' is compared at the end of each interval and has no period"),
            ("cpu > 90%/min", "'cpu' is compared at the end of each interval and has no period"),
            ("net > 1GiB/day", "unknown period 'day'"),
            ("net > 1GiB/", "unknown period ''"),
        ] {
            assert_eq!(refused(text).0, message);
        }
    }

    #[test]
    fn limit_in_another_unit_is_refused() {
        for (text, reason, remedy) in [
            ("cpu > 90", "the percent sign is missing", "write a percentage, as in 20% or 0.5%"),
            ("cpu > -1%", "this is not a number", "write a percentage, as in 20% or 0.5%"),
            ("cpu > .5%", "this is not a number", "write a percentage, as in 20% or 0.5%"),
            ("cpu > 1.2345%", "there are more than three decimals", "write a percentage, as in 20% or 0.5%"),
            ("cpu > 99999999999999999999%", "this is too large", "write a percentage, as in 20% or 0.5%"),
            ("net > 8388608T", "this is too large", "write a size, as in 64KiB or 2GiB"),
        ] {
            let (message, advice) = refused(text);
            assert!(message.ends_with(&format!("is not valid: {reason}")), "{message}");
            assert_eq!(advice, remedy);
        }
        for text in ["rss > 20%", "rss > -1", "net > 1GB", "net > --1", "threads > 1KiB", "threads > many"] {
            assert!(refused(text).0.starts_with("the limit '"), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_condition_or_refused(text in "[a-z._]{0,9}[<>=]{0,2}\\PC{0,12}", any in "\\PC*") {
            let _ = any.parse::<Condition>();
            if let Ok(condition) = text.parse::<Condition>() {
                let shown = condition.to_string();
                prop_assert_eq!(parsed(&shown), parsed(&text));
            }
        }

        #[test]
        fn displayed_limit_parses_to_itself(limit in 0..i64::MAX, place in 0..FIELDS.len()) {
            let field = &FIELDS[place];
            let condition =
                Condition { subject: field.subjects[0], field, comparison: Comparison::AtMost, limit, period: None };
            prop_assert_eq!(parsed(&condition.to_string()).3, limit);
        }
    }
}
