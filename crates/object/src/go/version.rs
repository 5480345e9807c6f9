//! Versions of Go, and the differences between them in the memory of a process.

use std::fmt;

use memtrace_model::plain;

use super::bucket_record::RecordLayout;

/// Maximum length of a version in bytes. Versions of vendors and of development have about 60.
const MAX_VERSION: usize = 256;

/// Version of the Go toolchain that has made a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoVersion {
    text: String,
    /// Minor release, such as 22 for `go1.22.3`; `None` if the text names none, or if another toolchain has made the program.
    minor: Option<u32>,
    /// True for a version between two releases. It has the layouts of one of them.
    is_development: bool,
}

/// Layout of the heap profile in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProfileLayout {
    /// Layout of the numbers of a bucket.
    pub(super) record: RecordLayout,
    /// Maximum number of frames of a bucket.
    pub(super) max_depth: u16,
}

impl GoVersion {
    /// Parses a version as `.go.buildinfo` has it: `go1.22.3`, `go1.22.3 X:rangefunc`, `go1.19.8-debian`, `go1.23rc1`,
    /// `devel go1.27-d2f4b1c Tue Jan 6`, `go1.27-devel_d2f4b1c`. Returns `None` if the text is too long.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_VERSION {
            return None;
        }
        let is_development = text.starts_with("devel") || text.contains("-devel");
        let release = text.strip_prefix("devel ").unwrap_or(text);
        // The runtime of gccgo is another one.
        let minor = if text.contains("gccgo") { None } else { minor_of(release) };
        Some(Self { text: text.to_owned(), minor, is_development })
    }

    /// Returns the minor release whose tables of functions the program has.
    pub(super) const fn minor(&self) -> Option<u32> {
        self.minor
    }

    /// Returns the layout of the heap profile; `None` if it is not known.
    ///
    /// The numbers of a bucket had four words from 1.8 to 1.26 and have two from 1.27 on (`memRecordCycle`, runtime/mprof.go).
    /// Its stack had up to 32 frames until 1.22, and has as many as `GODEBUG=profstackdepth` allows from 1.23 on.
    pub(super) fn profile_layout(&self) -> Option<ProfileLayout> {
        let minor = self.minor.filter(|_| !self.is_development)?;
        let record = match minor {
            19..=26 => RecordLayout::CountsAndBytes,
            27 => RecordLayout::Counts,
            _ => return None,
        };
        Some(ProfileLayout { record, max_depth: if minor < 23 { 32 } else { 1024 } })
    }
}

impl fmt::Display for GoVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&plain(&self.text))
    }
}

/// Returns the number after `go1.`.
fn minor_of(release: &str) -> Option<u32> {
    let rest = release.strip_prefix("go1.")?;
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(text: &str) -> Option<ProfileLayout> {
        GoVersion::parse(text).unwrap().profile_layout()
    }

    #[test]
    fn releases_and_their_suffixes_are_parsed() {
        let minor = |text: &str| GoVersion::parse(text).unwrap().minor();
        for (text, expected) in [
            ("go1.22.3", 22),
            ("go1.22", 22),
            ("go1.22.3 X:rangefunc,boringcrypto", 22),
            ("go1.19.8-debian", 19),
            ("go1.21.0+auto", 21),
            ("go1.23rc2", 23),
            ("go1.24-20240603-RC00 cl/639759393", 24),
            ("devel go1.27-d2f4b1c Tue Jan 6 10:00:00 2026 +0000", 27),
            ("go1.26-devel_d2f4b1c Tue Jan 6 10:00:00 2026 +0000", 26),
            ("go1.7", 7),
        ] {
            assert_eq!(minor(text), Some(expected), "{text}");
        }
        for text in ["devel +d2f4b1c Tue Jan 6", "go2.1", "go1.", "go1.x", "1.22", "", "go1.99999999999"] {
            assert_eq!(minor(text), None, "{text}");
        }
        assert_eq!(minor("go1.18 gccgo (GCC) 12.2.0 linux/amd64"), None);
        assert_eq!(GoVersion::parse(&"x".repeat(257)), None);
        assert_eq!(GoVersion::parse("go1.2\u{1b}[2J").unwrap().to_string(), "go1.2\u{fffd}[2J");
    }

    #[test]
    fn layouts_are_known_for_releases_only() {
        let four = |max_depth| Some(ProfileLayout { record: RecordLayout::CountsAndBytes, max_depth });
        let layouts = |minors: std::ops::RangeInclusive<u32>| minors.map(|minor| layout(&format!("go1.{minor}.1")));
        assert!(layouts(19..=22).all(|layout| layout == four(32)));
        assert!(layouts(23..=26).all(|layout| layout == four(1024)));
        assert_eq!(layout("go1.27.3"), Some(ProfileLayout { record: RecordLayout::Counts, max_depth: 1024 }));
        let unknown = ["go1.18.10", "go1.28", "devel go1.27-d2f4b1c", "go1.27-devel_d2f4b1c", "go1.20 gccgo (GCC)"];
        assert_eq!(unknown.map(layout), [None; 5]);
    }
}
