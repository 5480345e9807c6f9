//! Sources of allocations: probes in allocators, and heap profiles that the targets keep.

use clap::builder::{PossibleValue, TypedValueParser};

use crate::options::possible_values;

/// Sources of the allocations of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AllocationSource {
    /// Probes in allocators, and heap profiles that targets keep.
    #[default]
    Auto,
    /// Probes in allocators only.
    Exact,
    /// Heap profiles that targets keep, and samplers of allocators, only.
    Own,
}

impl AllocationSource {
    /// All sources, ordered as in the help.
    const ALL: &[Self] = &[Self::Auto, Self::Exact, Self::Own];

    /// Name on the command line.
    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Exact => "exact",
            Self::Own => "own",
        }
    }

    /// Returns true if each call of an allocator is traced.
    pub(crate) const fn attaches_probes(self) -> bool {
        matches!(self, Self::Auto | Self::Exact)
    }

    /// Returns true if heap profiles that targets keep are read.
    pub(crate) const fn reads_own(self) -> bool {
        matches!(self, Self::Auto | Self::Own)
    }
}

pub(crate) fn sources() -> impl TypedValueParser<Value = AllocationSource> {
    possible_values::one_of(AllocationSource::ALL, |source| {
        let help = match source {
            AllocationSource::Auto => {
                "each call of an allocator, Go's own heap profile, and USDT probes of programs without a traced allocator"
            }
            AllocationSource::Exact => "each call of an allocator; Go programs are not traced",
            AllocationSource::Own => "only heap profiles, samplers and USDT probes that the target has",
        };
        PossibleValue::new(source.name()).help(help)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{refusal_of_trace as refused, resolved_trace as resolved};

    #[test]
    fn source_is_auto_unless_given() {
        let source = |line: &str| resolved(line).map(|config| config.heap.source);
        assert_eq!(source("--pid 7"), Ok(AllocationSource::Auto));
        assert_eq!(source("--pid 7 --source exact"), Ok(AllocationSource::Exact));
        assert_eq!(source("--all --source own"), Ok(AllocationSource::Own));
        assert!(refused("--pid 7 --source own --events fault").starts_with("--source needs heap events"));
    }

    #[test]
    fn sources_state_what_they_read() {
        let facts = AllocationSource::ALL.iter().map(|source| (source.attaches_probes(), source.reads_own()));
        assert_eq!(facts.collect::<Vec<_>>(), [(true, true), (true, false), (false, true)]);
    }
}
