//! Parsers of options with a fixed set of values. The help lists the values.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use memtrace_model::{EventClass, GroupBy, Metric, TagFormat};
use memtrace_report::Format;

use crate::targets::select::ProbeSite;

pub(crate) fn formats() -> impl TypedValueParser<Value = Format> {
    report_formats(Format::OF_STACKS)
}

pub(crate) fn report_formats(formats: &'static [Format]) -> impl TypedValueParser<Value = Format> {
    one_of(formats, |format| PossibleValue::new(format.name()).help(format.facts().help))
}

pub(crate) fn metrics() -> impl TypedValueParser<Value = Metric> {
    one_of(&Metric::ALL, |metric| PossibleValue::new(metric.name()).help(metric.facts().help))
}

pub(crate) fn event_classes() -> impl TypedValueParser<Value = EventClass> {
    one_of(EventClass::ALL, |class| {
        let facts = class.facts();
        PossibleValue::new(facts.name).help(facts.help)
    })
}

pub(crate) fn group_keys() -> impl TypedValueParser<Value = GroupBy> {
    one_of(GroupBy::ALL, |key| {
        let help = match key {
            GroupBy::Process => "process",
            GroupBy::Cgroup => "control group, and so service or container",
            GroupBy::User => "user",
            GroupBy::Comm => "short name of the process",
            GroupBy::Allocator => "allocator that returned the block",
            GroupBy::Thread => "thread",
            GroupBy::Memory => "kind of memory: heap, anonymous, file, stack, shmem; for page faults",
            GroupBy::Object => {
                "object that called the allocator, outside of allocators and libraries of C, C++ and Rust"
            }
            GroupBy::Tag => "tag, by the rules of --tags or the functions of --tag-from",
        };
        PossibleValue::new(key.name()).help(help)
    })
}

pub(crate) fn tag_formats() -> impl TypedValueParser<Value = TagFormat> {
    one_of(TagFormat::ALL, |format| {
        let help = match format {
            TagFormat::Hex => "hexadecimal, as in 0xa000001",
            TagFormat::Dec => "decimal",
        };
        PossibleValue::new(format.name()).help(help)
    })
}

pub(crate) fn probe_sites() -> impl TypedValueParser<Value = ProbeSite> {
    one_of(&[ProbeSite::Best, ProbeSite::Return, ProbeSite::Entry], |site| match site {
        ProbeSite::Best => {
            PossibleValue::new("best").help("one with both size and block, if each call passes one; else as `return`")
        }
        ProbeSite::Return => PossibleValue::new("return")
            .help("the return, and the first instruction that the kernel emulates, if it sees every call"),
        ProbeSite::Entry => PossibleValue::new("entry").help("the return and the first instruction"),
    })
}

/// Parses one of the values `all`. `show` returns the name and the help text of a value.
pub(crate) fn one_of<T: Copy + Send + Sync>(
    all: &'static [T],
    show: fn(&T) -> PossibleValue,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(show)).try_map(move |name| {
        all.iter().copied().find(|value| show(value).get_name() == name).ok_or("this is not one of the possible values")
    })
}
