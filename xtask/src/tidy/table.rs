//! Table of the permitted imports between the modules of the crate memtrace. Cargo checks only imports between crates.

/// Module of the crate memtrace.
pub(super) struct Module {
    pub(super) name: &'static str,
    /// Modules that this module may import.
    pub(super) imports: &'static [&'static str],
}

/// Modules in dependency order: each may import only modules above it. Products do not import each other.
pub(super) const MODULES: &[Module] = &[
    Module { name: "run_kit", imports: &[] },
    Module { name: "targets", imports: &["run_kit"] },
    Module { name: "doctor", imports: &["run_kit"] },
    Module { name: "explain", imports: &["run_kit", "targets"] },
    Module { name: "replay", imports: &["run_kit"] },
    Module { name: "options", imports: &["run_kit", "targets"] },
    Module { name: "trace", imports: &["options", "run_kit", "targets"] },
    Module { name: "threads", imports: &["run_kit", "targets"] },
    Module { name: "working_set", imports: &["run_kit", "targets"] },
    Module {
        name: "cli",
        imports: &["doctor", "explain", "options", "replay", "run_kit", "targets", "threads", "trace", "working_set"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_modules_above_the_importing_one() {
        for (index, row) in MODULES.iter().enumerate() {
            for import in row.imports {
                assert!(MODULES[..index].iter().any(|above| above.name == *import), "{} imports {import}", row.name);
            }
        }
    }
}
