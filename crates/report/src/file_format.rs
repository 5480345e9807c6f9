//! Formats of reports. Each format has a row of facts. Names, extensions and help texts derive from these rows.

use std::path::Path;

use memtrace_model::EventClass;

/// Format of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Interactive flame graph.
    Svg,
    /// Self-contained web page with a flame graph, tables and memory over time.
    Html,
    /// Folded stacks, one per line, for flame graph tools.
    Folded,
    /// All data, for scripts.
    Json,
    /// Summary for people.
    Text,
    /// Profile for pprof.
    Pprof,
    /// Trace for Perfetto.
    Perfetto,
    /// Profile for the Firefox Profiler.
    Firefox,
    /// Profile for speedscope.
    Speedscope,
    /// Data file of heaptrack.
    Heaptrack,
    /// Comma-separated values, for accounts, threads and working sets only.
    Csv,
}

/// Facts about a format.
#[derive(Debug)]
pub struct FormatFacts {
    /// Name on the command line.
    pub name: &'static str,
    /// File name extension, without the first dot: `pb.gz`.
    pub extension: &'static str,
    /// Description in the help.
    pub help: &'static str,
}

impl Format {
    /// Every format of a report, ordered as in the help.
    pub const ALL: &[Self] = &[
        Self::Svg,
        Self::Html,
        Self::Folded,
        Self::Json,
        Self::Text,
        Self::Pprof,
        Self::Perfetto,
        Self::Firefox,
        Self::Speedscope,
        Self::Heaptrack,
        Self::Csv,
    ];

    /// Every format of stacks, ordered as in the help: all but CSV.
    pub const OF_STACKS: &[Self] = Self::ALL.split_at(Self::ALL.len() - 1).0;

    /// Every format of the difference of two reports, ordered as in the help.
    pub const OF_DIFFERENCES: &[Self] = &[Self::Svg, Self::Folded, Self::Json, Self::Text];

    /// Every format of explanations of the memory of a process, ordered as in the help.
    pub const OF_EXPLANATIONS: &[Self] = &[Self::Text, Self::Json];

    /// Every format of accounts, ordered as in the help.
    pub const OF_ACCOUNTS: &[Self] = &[Self::Text, Self::Csv, Self::Json, Self::Perfetto];

    /// Every format of threads, ordered as in the help.
    pub const OF_THREADS: &[Self] = &[Self::Text, Self::Svg, Self::Csv, Self::Json, Self::Perfetto];

    /// Every format of working sets, ordered as in the help.
    pub const OF_WORKING_SETS: &[Self] = &[Self::Text, Self::Svg, Self::Csv, Self::Json];

    /// Returns the facts about this format.
    #[must_use]
    pub const fn facts(self) -> &'static FormatFacts {
        match self {
            Self::Svg => &FormatFacts { name: "svg", extension: "svg", help: "an interactive flame graph" },
            Self::Html => &FormatFacts {
                name: "html",
                extension: "html",
                help: "a page with a flame graph, tables and memory over time",
            },
            Self::Folded => &FormatFacts { name: "folded", extension: "folded", help: "folded stacks, one per line" },
            Self::Json => &FormatFacts { name: "json", extension: "json", help: "all data, for scripts" },
            Self::Text => &FormatFacts { name: "txt", extension: "txt", help: "a summary" },
            Self::Pprof => {
                &FormatFacts { name: "pprof", extension: "pb.gz", help: "a profile for pprof, with all metrics" }
            }
            Self::Perfetto => &FormatFacts {
                name: "perfetto",
                extension: "pftrace",
                help: "a trace for Perfetto, with memory over time",
            },
            Self::Firefox => &FormatFacts {
                name: "firefox",
                extension: "firefox.json",
                help: "a profile for the Firefox Profiler, by process",
            },
            Self::Speedscope => &FormatFacts {
                name: "speedscope",
                extension: "speedscope.json",
                help: "a profile for speedscope, with all metrics",
            },
            Self::Heaptrack => &FormatFacts {
                name: "heaptrack",
                extension: "heaptrack.zst",
                help: "a file for heaptrack_gui and heaptrack_print",
            },
            Self::Csv => {
                &FormatFacts { name: "csv", extension: "csv", help: "comma-separated values, for accounts and threads" }
            }
        }
    }

    /// Returns true if the format shows trends: the changes of stacks over time.
    #[must_use]
    pub const fn shows_trends(self) -> bool {
        matches!(self, Self::Text | Self::Json | Self::Html)
    }

    /// Returns true if the format shows memory over time, provided that the run has collected it.
    #[must_use]
    pub const fn shows_timeline(self) -> bool {
        matches!(self, Self::Svg | Self::Json) || self.needs_timeline()
    }

    /// Returns true if a run must collect memory over time because it has an output of this format.
    #[must_use]
    pub const fn needs_timeline(self) -> bool {
        matches!(self, Self::Html | Self::Perfetto | Self::Firefox)
    }

    /// Returns true if the format shows the totals of several moments.
    #[must_use]
    pub const fn shows_moments(self) -> bool {
        matches!(self, Self::Perfetto)
    }

    /// Returns true if the format shows accounts over time, instead of a table.
    #[must_use]
    pub const fn shows_accounts_over_time(self) -> bool {
        matches!(self, Self::Perfetto)
    }

    /// Returns true if the format draws the activity of threads over time.
    #[must_use]
    pub const fn shows_spans(self) -> bool {
        matches!(self, Self::Perfetto | Self::Html)
    }

    /// Returns true if reports of `class` can be written in this format. Formats that describe only memory cannot show
    /// stalls.
    #[must_use]
    pub fn holds(self, class: EventClass) -> bool {
        !(class.counts_stalls() && matches!(self, Self::Firefox | Self::Heaptrack))
    }

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns the file name extension, without the first dot.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        self.facts().extension
    }

    /// Returns the format of a file by the extension of its name, in upper or lower case. If several extensions match,
    /// the longest one counts.
    #[must_use]
    pub fn of_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.as_encoded_bytes();
        let ends_name = |format: &Self| {
            let extension = format.extension().as_bytes();
            let Some((before, end)) = name.split_at_checked(name.len().wrapping_sub(extension.len())) else {
                return false;
            };
            // A file name that consists of a dot and an extension has no extension: it is a hidden file.
            matches!(before, [_, .., b'.']) && end.eq_ignore_ascii_case(extension)
        };
        Self::ALL.iter().copied().filter(ends_name).max_by_key(|format| format.extension().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_extension_selects_the_format() {
        let of = |path: &str| Format::of_path(Path::new(path));
        assert_eq!(of("a.json"), Some(Format::Json));
        assert_eq!(of("b.txt/a.Speedscope.JSON"), Some(Format::Speedscope));
        assert_eq!(of("a.firefox.json"), Some(Format::Firefox));
        assert_eq!(of("a.heap.pb.gz"), Some(Format::Pprof));
        assert_eq!(of("speedscope.json"), Some(Format::Json));
        for path in [".svg", "svg", "a.gz", "a.svg.old", "a.heaptrack", "-", ""] {
            assert_eq!(of(path), None, "{path}");
        }
    }

    #[test]
    fn every_format_has_its_own_name_and_extension() {
        assert!(!Format::OF_STACKS.contains(&Format::Csv));
        for (index, format) in Format::ALL.iter().enumerate() {
            let others = &Format::ALL[..index];
            assert!(
                others.iter().all(|other| other.name() != format.name() && other.extension() != format.extension())
            );
            assert_eq!(Format::of_path(Path::new(&format!("a.{}", format.extension()))), Some(*format));
        }
    }
}
