//! The import rules between the submodules of a module as data: Cargo checks only those between crates.

/// A submodule.
pub(super) struct Module {
    pub(super) name: &'static str,
    /// Submodules that it may import.
    pub(super) imports: &'static [&'static str],
}

/// The submodules of a module.
pub(super) struct Submodules {
    pub(super) parent: &'static str,
    /// In dependency order: each may import only submodules above it. The parent's own file may import all of them.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_submodules_above_the_importing_one() {
        for Submodules { rows, .. } in SUBMODULES {
            for (index, row) in rows.iter().enumerate() {
                for import in row.imports {
                    assert!(rows[..index].iter().any(|above| above.name == *import), "{} imports {import}", row.name);
                }
            }
        }
    }
}
