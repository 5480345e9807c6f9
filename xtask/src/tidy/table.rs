//! The import rules of memtrace's modules as data. ARCHITECTURE.md documents them.

/// A top-level module of memtrace.
pub(super) struct Module {
    pub(super) name: &'static str,
    /// Modules, or single items of modules, that it may import.
    pub(super) imports: &'static [&'static str],
}

/// The modules in dependency order: each may import only modules above it.
pub(super) const MODULES: &[Module] = &[
    Module { name: "model", imports: &[] },
    Module { name: "cache_directory", imports: &["model"] },
    Module { name: "elf", imports: &["model"] },
    Module { name: "debuginfod", imports: &["model", "cache_directory", "elf"] },
    Module { name: "procfs", imports: &["model", "elf"] },
    Module { name: "pmu", imports: &["model", "procfs"] },
    Module { name: "kernel", imports: &["model", "procfs"] },
    Module { name: "mmap_events", imports: &["model"] },
    Module { name: "probe_site", imports: &["model", "elf"] },
    Module { name: "allocators", imports: &["model", "elf", "probe_site"] },
    Module { name: "launch", imports: &["model", "procfs"] },
    Module { name: "loader", imports: &["model", "elf", "procfs", "allocators", "launch"] },
    Module { name: "eh_frame", imports: &["model", "cache_directory", "elf"] },
    Module { name: "explain", imports: &["model", "procfs", "elf", "allocators"] },
    Module { name: "ledger", imports: &["model"] },
    Module { name: "pipeline", imports: &["model", "ledger"] },
    Module { name: "accounts", imports: &["model"] },
    Module { name: "activity", imports: &["model"] },
    Module { name: "monitor", imports: &["model"] },
    Module { name: "triggers", imports: &["model"] },
    Module { name: "registry", imports: &["model"] },
    Module { name: "reconcile", imports: &["model"] },
    Module { name: "history", imports: &["model", "activity", "reconcile"] },
    Module { name: "symbolize", imports: &["model", "elf"] },
    Module { name: "tags", imports: &["model"] },
    Module { name: "report", imports: &["model"] },
    Module {
        name: "session",
        imports: &[
            "model",
            "procfs",
            "pmu",
            "kernel",
            "mmap_events",
            "allocators",
            "probe_site",
            "launch",
            "loader",
            "eh_frame",
            "debuginfod",
            "explain",
            "ledger",
            "pipeline",
            "accounts",
            "activity",
            "triggers",
            "monitor",
            "registry",
            "reconcile",
            "history",
            "symbolize",
            "tags",
            "report",
        ],
    },
    Module {
        name: "doctor",
        imports: &["model", "elf", "procfs", "pmu", "kernel", "mmap_events", "allocators", "symbolize", "session"],
    },
    Module {
        name: "cli",
        imports: &["model", "session", "doctor", "report::Format", "tags::TagRules", "triggers::Condition"],
    },
];

/// The submodules of a module.
pub(super) struct Submodules {
    pub(super) parent: &'static str,
    /// In dependency order, like [`MODULES`]. The parent's own file may import all of them.
    pub(super) rows: &'static [Module],
}

pub(super) const SUBMODULES: &[Submodules] = &[Submodules {
    parent: "session",
    rows: &[
        Module { name: "bounded_set", imports: &[] },
        Module { name: "clock", imports: &[] },
        Module { name: "grouping", imports: &[] },
        Module { name: "config", imports: &["grouping"] },
        Module { name: "descriptors", imports: &[] },
        Module { name: "error", imports: &[] },
        Module { name: "page_tracker", imports: &["error"] },
        Module { name: "own_allocator", imports: &[] },
        Module { name: "observer", imports: &[] },
        Module { name: "outcome", imports: &[] },
        Module { name: "protection", imports: &[] },
        Module { name: "outputs", imports: &["config", "error"] },
        Module { name: "explain", imports: &["config", "error", "outputs"] },
        Module { name: "marks", imports: &[] },
        Module { name: "mark_requests", imports: &["error", "marks", "observer"] },
        Module { name: "recording_file", imports: &["config", "error"] },
        Module { name: "replay", imports: &["config", "error", "grouping", "observer", "outcome", "outputs"] },
        Module { name: "difference", imports: &["config", "error", "outputs", "replay"] },
        Module { name: "track", imports: &["bounded_set", "clock"] },
        Module { name: "sample", imports: &["config", "track"] },
        Module { name: "select", imports: &["config", "error", "outcome", "track"] },
        Module { name: "overhead", imports: &["config", "error", "select", "track"] },
        Module { name: "unwind_tables", imports: &["bounded_set", "config", "error", "select", "track"] },
        Module {
            name: "run",
            imports: &[
                "clock",
                "config",
                "descriptors",
                "error",
                "mark_requests",
                "marks",
                "own_allocator",
                "observer",
                "outcome",
                "outputs",
                "overhead",
                "page_tracker",
                "protection",
                "replay",
                "sample",
                "recording_file",
                "select",
                "track",
                "unwind_tables",
            ],
        },
        Module {
            name: "threads",
            imports: &[
                "clock",
                "config",
                "error",
                "mark_requests",
                "marks",
                "own_allocator",
                "observer",
                "outcome",
                "outputs",
                "protection",
                "run",
                "recording_file",
                "select",
                "track",
            ],
        },
        Module {
            name: "working_set",
            imports: &["config", "descriptors", "error", "observer", "outputs", "page_tracker", "run", "select"],
        },
    ],
}];

/// A dependency, or a part of one, and the modules that may use it.
pub(super) struct Dependency {
    pub(super) path: &'static str,
    pub(super) users: Users,
}

/// The modules that may use a dependency.
pub(super) enum Users {
    /// All modules.
    All,
    /// Only these modules.
    Only(&'static [&'static str]),
    /// The modules in the first list, and those in the second list for constants (names in capitals).
    ConstantsFor(&'static [&'static str], &'static [&'static str]),
}

/// All dependencies of memtrace. The longest matching path applies.
pub(super) const DEPENDENCIES: &[Dependency] = &[
    Dependency { path: "aya", users: Users::Only(&["kernel"]) },
    Dependency { path: "aya_log", users: Users::Only(&["kernel"]) },
    Dependency { path: "aya_obj", users: Users::Only(&["kernel"]) },
    Dependency { path: "blazesym", users: Users::Only(&["symbolize"]) },
    Dependency { path: "clap", users: Users::Only(&["cli"]) },
    Dependency { path: "clap_complete", users: Users::Only(&["cli"]) },
    Dependency { path: "clap_mangen", users: Users::Only(&["cli"]) },
    Dependency { path: "cpp_demangle", users: Users::Only(&["symbolize"]) },
    Dependency { path: "env_logger", users: Users::Only(&["cli"]) },
    Dependency { path: "gimli", users: Users::Only(&["eh_frame"]) },
    Dependency { path: "hashbrown", users: Users::All },
    Dependency { path: "iced_x86", users: Users::Only(&["probe_site", "allocators"]) },
    Dependency { path: "inferno", users: Users::Only(&["report"]) },
    Dependency { path: "jiff", users: Users::Only(&["cli"]) },
    Dependency {
        path: "libc",
        users: Users::Only(&["kernel", "procfs", "pmu", "mmap_events", "launch", "loader", "session", "cli"]),
    },
    Dependency { path: "log", users: Users::All },
    Dependency { path: "memtrace_common", users: Users::Only(&["kernel", "model"]) },
    Dependency { path: "memtrace_common::unwind", users: Users::Only(&["kernel", "eh_frame"]) },
    // The model's types have special values from the wire format, such as the id of an absent stack.
    Dependency { path: "memtrace_common::wire", users: Users::ConstantsFor(&["kernel"], &["model"]) },
    Dependency { path: "memtrace_json", users: Users::Only(&["report", "cli"]) },
    Dependency { path: "memtrace_unwind", users: Users::Only(&["kernel"]) },
    Dependency { path: "libmimalloc_sys", users: Users::Only(&["session"]) },
    // The binary uses it, and no module of the library.
    Dependency { path: "mimalloc", users: Users::Only(&[]) },
    Dependency { path: "object", users: Users::Only(&["elf", "eh_frame", "symbolize"]) },
    Dependency { path: "perf_event", users: Users::Only(&["pmu"]) },
    Dependency { path: "rusqlite", users: Users::Only(&["history"]) },
    Dependency { path: "rustc_demangle", users: Users::Only(&["symbolize"]) },
    Dependency { path: "rustc_hash", users: Users::All },
    Dependency { path: "rustls", users: Users::Only(&["debuginfod"]) },
    Dependency { path: "serde", users: Users::Only(&["report", "tags"]) },
    Dependency { path: "serde_json", users: Users::Only(&["report", "cli"]) },
    Dependency { path: "thiserror", users: Users::All },
    Dependency { path: "tokio", users: Users::Only(&["session"]) },
    Dependency { path: "csv", users: Users::Only(&["report"]) },
    Dependency { path: "flate2", users: Users::Only(&["report"]) },
    Dependency { path: "fxprof_processed_profile", users: Users::Only(&["report"]) },
    Dependency { path: "prost", users: Users::Only(&["report"]) },
    Dependency { path: "zstd", users: Users::Only(&["report"]) },
    Dependency { path: "toml", users: Users::Only(&["tags"]) },
    Dependency { path: "ureq", users: Users::Only(&["debuginfod"]) },
    Dependency { path: "wildmatch", users: Users::Only(&["tags"]) },
];

/// Returns the row of a top-level module.
pub(super) fn module(name: &str) -> Option<&'static Module> {
    MODULES.iter().find(|module| module.name == name)
}

/// Returns the row of [`DEPENDENCIES`] with the longest path that is a prefix of `path`.
pub(super) fn dependency(path: &[String]) -> Option<&'static Dependency> {
    DEPENDENCIES.iter().filter(|row| starts_with(path, row.path)).max_by_key(|row| row.path.len())
}

/// Returns true if `prefix`, a path with colons, is a prefix of `path`.
pub(super) fn starts_with(path: &[String], prefix: &str) -> bool {
    let mut segments = path.iter();
    prefix.split("::").all(|expected| segments.next().is_some_and(|segment| segment == expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PURE: [&str; 8] = ["accounts", "ledger", "mmap_events", "monitor", "reconcile", "registry", "report", "tags"];

    #[test]
    fn pure_modules_import_only_the_model() {
        for name in PURE {
            assert_eq!(module(name).unwrap().imports, ["model"], "{name}");
        }
    }

    #[test]
    fn imports_are_modules_above_the_importing_one() {
        for rows in SUBMODULES.iter().map(|table| table.rows).chain([MODULES]) {
            for (index, row) in rows.iter().enumerate() {
                for import in row.imports {
                    let name = import.split("::").next().unwrap();
                    assert!(rows[..index].iter().any(|above| above.name == name), "{} imports {import}", row.name);
                }
            }
        }
    }

    #[test]
    fn modules_are_documented() {
        let document = include_str!("../../../ARCHITECTURE.md");
        for Module { name, .. } in MODULES {
            assert!(document.contains(&format!("| `memtrace::{name}` |")), "{name}");
        }
    }

    #[test]
    fn longest_dependency_path_applies() {
        let path = ["memtrace_common", "wire", "Kind"].map(String::from);
        assert_eq!(dependency(&path).unwrap().path, "memtrace_common::wire");
        assert_eq!(dependency(&path[..1]).unwrap().path, "memtrace_common");
        assert!(dependency(&[String::from("std")]).is_none());
    }
}
