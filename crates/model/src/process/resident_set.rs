//! RSS of a process in heap reports, and the language runtime that may hold a part of it.

use std::path::Path;

use crate::Bytes;

/// RSS of a process that runs at the end of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentSet {
    /// RSS at the start of the trace; `None` if the process has started later.
    pub start: Option<Bytes>,
    /// RSS at the end of the trace.
    pub end: Bytes,
    /// Part of `end` that is shared memory.
    pub shared: Bytes,
    /// Language runtime of the process, if it is known.
    pub runtime: Option<Runtime>,
}

impl ResidentSet {
    /// Adds the RSS of another process. A sum has no runtime.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |one: Bytes, other: Bytes| Bytes(one.0.saturating_add(other.0));
        Self {
            start: self.start.zip(other.start).map(|(one, other)| sum(one, other)),
            end: sum(self.end, other.end),
            shared: sum(self.shared, other.shared),
            runtime: None,
        }
    }
}

/// Language runtime with memory of its own, which malloc does not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    Python,
    Ruby,
    Node,
    Java,
    Go,
    Erlang,
}

impl Runtime {
    /// All runtimes. Recordings store the index in this array.
    pub const ALL: [Self; 6] = [Self::Python, Self::Ruby, Self::Node, Self::Java, Self::Go, Self::Erlang];

    /// Returns the name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Ruby => "ruby",
            Self::Node => "node",
            Self::Java => "java",
            Self::Go => "go",
            Self::Erlang => "erlang",
        }
    }

    /// Recognizes the runtime of a program by its executable, by its objects, or by `is_go`. The names of Go programs say nothing
    /// about their language, but their executables do.
    pub fn of_program<'a>(
        exe: Option<&Path>,
        objects: impl IntoIterator<Item = &'a Path>,
        is_go: impl FnOnce() -> bool,
    ) -> Option<Self> {
        let of_library = || objects.into_iter().find_map(Self::of_library);
        exe.and_then(Self::of_executable).or_else(of_library).or_else(|| is_go().then_some(Self::Go))
    }

    /// Recognizes a runtime by the name of the executable: `python3.11`, `node`.
    #[must_use]
    pub fn of_executable(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        match name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.') {
            "python" | "pypy" => Some(Self::Python),
            "ruby" => Some(Self::Ruby),
            "node" | "nodejs" => Some(Self::Node),
            "java" => Some(Self::Java),
            "beam.smp" => Some(Self::Erlang),
            _ => None,
        }
    }

    /// Recognizes the library of a runtime: `libpython3.11.so.1.0`, `libjvm.so`.
    fn of_library(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let libraries = [
            ("libpython", Self::Python),
            ("libruby", Self::Ruby),
            ("libnode.so", Self::Node),
            ("libjvm.so", Self::Java),
        ];
        libraries.into_iter().find(|(start, _)| name.starts_with(start)).map(|(_, runtime)| runtime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_are_recognized_by_names_of_files() {
        let of = |path: &str| Runtime::of_executable(path.as_ref());
        assert_eq!(of("/usr/bin/python3.11"), Some(Runtime::Python));
        assert_eq!(of("/usr/lib/jvm/bin/java"), Some(Runtime::Java));
        assert_eq!(of("/usr/lib/erlang/erts-13/bin/beam.smp"), Some(Runtime::Erlang));
        assert_eq!(["/usr/bin/node_exporter", "/usr/bin/pythonic", "/"].map(of), [None; 3]);
        let of = |path: &str| Runtime::of_library(path.as_ref());
        assert_eq!(of("/usr/lib/libpython3.11.so.1.0"), Some(Runtime::Python));
        assert_eq!(of("/usr/lib/libc.so.6"), None);
    }

    #[test]
    fn sum_of_processes_has_a_start_if_all_have_one() {
        let one = |start| ResidentSet { start, end: Bytes(10), shared: Bytes(2), runtime: Some(Runtime::Go) };
        let sum = one(Some(Bytes(4))).plus(one(Some(Bytes(5))));
        assert_eq!(sum, ResidentSet { start: Some(Bytes(9)), end: Bytes(20), shared: Bytes(4), runtime: None });
        assert_eq!(one(None).plus(one(Some(Bytes(5)))).start, None);
    }
}
