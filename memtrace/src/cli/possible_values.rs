//! Parsers of options with a fixed set of values. The help lists the values.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use memtrace_model::{EventClass, GroupBy, Metric, ThreadColumn, WorkingSetMethod};
use memtrace_report::Format;

use crate::run_kit::account_column::AccountColumn;
use crate::targets::select::ProbeSite;
use crate::threads::{SourceChoice, ThreadsFormat};
use crate::trace::config::BlockSizes;

pub(super) fn formats() -> impl TypedValueParser<Value = Format> {
    report_formats(Format::OF_STACKS)
}

/// Parses the formats of `memtrace diff`.
pub(super) fn difference_formats() -> impl TypedValueParser<Value = Format> {
    report_formats(Format::OF_DIFFERENCES)
}

fn report_formats(formats: &'static [Format]) -> impl TypedValueParser<Value = Format> {
    one_of(formats, |format| PossibleValue::new(format.name()).help(format.facts().help))
}

/// Parses the formats of `memtrace explain`.
pub(super) fn explain_formats() -> impl TypedValueParser<Value = Format> {
    one_of(Format::OF_EXPLANATIONS, |format| {
        let help = if *format == Format::Json { "all data, for scripts" } else { "a page of text" };
        PossibleValue::new(format.name()).help(help)
    })
}

pub(super) fn metrics() -> impl TypedValueParser<Value = Metric> {
    one_of(&Metric::ALL, |metric| PossibleValue::new(metric.name()).help(metric.facts().help))
}

pub(super) fn working_set_methods() -> impl TypedValueParser<Value = WorkingSetMethod> {
    one_of(WorkingSetMethod::ALL, |method| {
        let help = match method {
            WorkingSetMethod::Referenced => "accessed bits, summed by mapping (clear_refs, smaps)",
            WorkingSetMethod::Idle => {
                "idle flags of single pages; also with unmapped pages of files (CONFIG_IDLE_PAGE_TRACKING)"
            }
            WorkingSetMethod::Damon => "an estimate by samples of the kernel (CONFIG_DAMON_VADDR, CONFIG_DAMON_SYSFS)",
            WorkingSetMethod::Faults => "pages that had a page fault: a lower bound (BPF)",
            WorkingSetMethod::Written => "soft-dirty bits of single pages: writes only (CONFIG_MEM_SOFT_DIRTY)",
        };
        PossibleValue::new(method.name()).help(help)
    })
}

pub(super) fn event_classes() -> impl TypedValueParser<Value = EventClass> {
    one_of(EventClass::ALL, |class| {
        let facts = class.facts();
        PossibleValue::new(facts.name).help(facts.help)
    })
}

pub(super) fn threads_formats() -> impl TypedValueParser<Value = ThreadsFormat> {
    one_of(ThreadsFormat::ALL, |format| {
        let help = match format {
            ThreadsFormat::Table => "a table of the threads, which changes in place on a terminal",
            ThreadsFormat::Csv => "comma-separated values, a row for each thread, process and interval",
            ThreadsFormat::Json => "JSON lines, one for each interval",
        };
        PossibleValue::new(format.name()).help(help)
    })
}

pub(super) fn working_set_formats() -> impl TypedValueParser<Value = Format> {
    one_of(Format::OF_WORKING_SETS, |format| {
        let help = match format {
            Format::Svg => "curves over time",
            Format::Csv => "comma-separated values, a row for each process and reading",
            Format::Json => "JSON lines, one for each reading",
            _ => "a table",
        };
        PossibleValue::new(format.name()).help(help)
    })
}

pub(super) fn thread_columns() -> impl TypedValueParser<Value = ThreadColumn> {
    one_of(ThreadColumn::ALL, |column| PossibleValue::new(column.name()))
}

pub(super) fn counter_sources() -> impl TypedValueParser<Value = SourceChoice> {
    one_of(SourceChoice::ALL, |source| {
        let help = match source {
            SourceChoice::Auto => "the counters of the allocator if it has any (jemalloc), otherwise probes",
            SourceChoice::Allocator => "the counters of the allocator only",
            SourceChoice::Bpf => "probes only",
        };
        PossibleValue::new(source.name()).help(help)
    })
}

pub(super) fn block_sizes() -> impl TypedValueParser<Value = BlockSizes> {
    one_of(BlockSizes::ALL, |sizes| {
        let help = match sizes {
            BlockSizes::Requested => "the size that the program has asked for",
            BlockSizes::Usable => "the size that the program can use, at least the requested one",
        };
        PossibleValue::new(sizes.name()).help(help)
    })
}

pub(super) fn group_keys() -> impl TypedValueParser<Value = GroupBy> {
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

pub(super) fn account_columns() -> impl TypedValueParser<Value = AccountColumn> {
    one_of(AccountColumn::ALL, |column| {
        let help = match column {
            AccountColumn::Name => "names of the groups",
            AccountColumn::Current => "live bytes",
            AccountColumn::Blocks => "live blocks",
            AccountColumn::High => "high-water mark of the live bytes",
            AccountColumn::Low => "low-water mark of the live bytes",
            AccountColumn::Allocated => "allocated bytes",
            AccountColumn::Freed => "freed bytes",
            AccountColumn::FreedByOthers => "bytes freed by threads other than the allocating one",
            AccountColumn::Exit => "bytes held at exit",
            AccountColumn::Discarded => "bytes held at exec",
            AccountColumn::Unmatched => "frees of blocks from before the trace",
            AccountColumn::PeakTime => "time of the high-water mark",
        };
        PossibleValue::new(column.name()).help(help)
    })
}

pub(super) fn probe_sites() -> impl TypedValueParser<Value = ProbeSite> {
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
fn one_of<T: Copy + Send + Sync>(all: &'static [T], show: fn(&T) -> PossibleValue) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(all.iter().map(show)).try_map(move |name| {
        all.iter().copied().find(|value| show(value).get_name() == name).ok_or("this is not one of the possible values")
    })
}
