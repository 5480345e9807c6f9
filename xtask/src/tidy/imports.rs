//! The product code of memtrace imports modules and dependencies only as the table permits.

use super::Violation;
use super::paths::{self, PathRef};
use super::product::{self, ProductFile};
use super::table::{self, Module, Users};
use super::tree::Tree;

const SOURCES: &str = "memtrace/src/";
const MANIFEST: &str = "memtrace/Cargo.toml";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut violations = check_manifest(tree);
    violations.extend(product::files_below(tree, SOURCES).iter().flat_map(check_file));
    violations
}

/// Every dependency must have a row, else all modules could use it.
fn check_manifest(tree: &Tree) -> Vec<Violation> {
    let Some(manifest) = tree.at(MANIFEST) else { return Vec::new() };
    dependencies(&manifest.text)
        .into_iter()
        .filter(|(_, name)| table::dependency(std::slice::from_ref(name)).is_none())
        .map(|(line, name)| {
            Violation::new(manifest, line, format!("tidy/table.rs has no row for the dependency {name}"))
        })
        .collect()
}

/// Returns the names in `[dependencies]` as written in code, with their lines.
fn dependencies(manifest: &str) -> Vec<(usize, String)> {
    let lines = manifest.lines().enumerate().skip_while(|(_, line)| line.trim() != "[dependencies]").skip(1);
    lines
        .take_while(|(_, line)| !line.starts_with('['))
        .filter_map(|(index, line)| {
            let name = line.split(['.', '=', ' ']).next()?;
            (!name.is_empty() && !name.starts_with('#')).then(|| (index + 1, name.replace('-', "_")))
        })
        .collect()
}

fn check_file(file: &ProductFile<'_>) -> Vec<Violation> {
    // The root of the crate may import all modules.
    let Some(name) = file.module.first() else { return Vec::new() };
    let Some(row) = table::module(name) else {
        return vec![Violation::new(file.source, 0, format!("tidy/table.rs has no row for the module {name}"))];
    };
    let violation = |path: &PathRef| {
        let verb = match (may_import(row, path), may_use(name, path)) {
            (true, true) => return None,
            (false, _) => "import",
            (true, false) => "use",
        };
        let message = format!("{name} must not {verb} {}", path.segments.join("::"));
        Some(Violation::new(file.source, path.line, message))
    };
    paths::in_file(&file.syntax, &file.module).iter().filter_map(violation).collect()
}

fn may_import(row: &Module, path: &PathRef) -> bool {
    let [root, inside @ ..] = &path.segments[..] else { return true };
    let Some(other) = inside.first().filter(|_| root == "crate").and_then(|name| table::module(name)) else {
        return true;
    };
    other.name == row.name || row.imports.iter().any(|import| table::starts_with(inside, import))
}

fn may_use(module: &str, path: &PathRef) -> bool {
    match table::dependency(&path.segments).map(|dependency| &dependency.users) {
        None | Some(Users::All) => true,
        Some(Users::Only(modules)) => modules.contains(&module),
        Some(Users::ConstantsFor(modules, constants)) => {
            let is_constant = path.segments.last().is_some_and(|name| is_constant(name));
            modules.contains(&module) || constants.contains(&module) && is_constant
        }
    }
}

fn is_constant(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn module_must_not_import_another_of_its_level() {
        let messages = messages("memtrace/src/report/svg.rs", "use crate::symbolize::Symbolizer;");
        assert_eq!(messages, ["report must not import crate::symbolize::Symbolizer"]);
    }

    #[test]
    fn path_through_super_is_resolved() {
        let messages = messages("memtrace/src/report.rs", "use super::kernel::Rings;");
        assert_eq!(messages, ["report must not import crate::kernel::Rings"]);
    }

    #[test]
    fn module_may_import_itself_and_the_model() {
        assert_eq!(messages("memtrace/src/report/svg.rs", "use super::Format; use crate::model::Bytes;"), [""; 0]);
    }

    #[test]
    fn model_imports_no_module() {
        assert_eq!(messages("memtrace/src/model/id.rs", "use crate::report::Format;").len(), 1);
    }

    #[test]
    fn only_kernel_uses_aya() {
        assert_eq!(messages("memtrace/src/kernel/load.rs", "use aya::Ebpf;"), [""; 0]);
        assert_eq!(messages("memtrace/src/session.rs", "use aya::Ebpf;"), ["session must not use aya::Ebpf"]);
        assert_eq!(messages("memtrace/src/session.rs", "fn f(_: &aya::Ebpf) {}"), ["session must not use aya::Ebpf"]);
    }

    #[test]
    fn only_kernel_uses_the_wire_and_model_its_constants() {
        let wire = "use memtrace_common::wire::AllocRecord;";
        assert_eq!(messages("memtrace/src/kernel/decode.rs", wire), [""; 0]);
        assert_eq!(
            messages("memtrace/src/ledger.rs", wire),
            ["ledger must not use memtrace_common::wire::AllocRecord"]
        );
        assert_eq!(
            messages("memtrace/src/model/event.rs", wire),
            ["model must not use memtrace_common::wire::AllocRecord"]
        );
        assert_eq!(messages("memtrace/src/model/time.rs", "use memtrace_common::wire::TICK_SHIFT;"), [""; 0]);
    }

    #[test]
    fn dependencies_are_restricted_to_their_users() {
        for (name, module) in [
            ("blazesym", "report"),
            ("inferno", "symbolize"),
            ("clap", "session"),
            ("tokio", "kernel"),
            ("iced_x86", "ledger"),
            ("object", "kernel"),
        ] {
            let messages = messages(&format!("memtrace/src/{module}.rs"), &format!("use {name}::Anything;"));
            assert_eq!(messages, [format!("{module} must not use {name}::Anything")]);
        }
    }

    #[test]
    fn tests_may_import_everything() {
        let text = "#[cfg(test)] mod tests { use object::Elf; use crate::kernel::Rings; }";
        assert_eq!(messages("memtrace/src/report.rs", text), [""; 0]);
    }

    #[test]
    fn cli_may_import_only_the_format_of_reports() {
        assert_eq!(messages("memtrace/src/cli.rs", "use crate::report::Format;"), [""; 0]);
        assert_eq!(
            messages("memtrace/src/cli.rs", "use crate::report::write;"),
            ["cli must not import crate::report::write"]
        );
    }

    #[test]
    fn module_without_a_row_is_a_violation() {
        let messages = messages("memtrace/src/helpers.rs", "");
        assert_eq!(messages, ["tidy/table.rs has no row for the module helpers"]);
    }

    #[test]
    fn dependency_without_a_row_is_a_violation() {
        let manifest =
            "[package]\nname = \"memtrace\"\n[dependencies]\naya-log.workspace = true\n\nrand = \"1\"\n[lints]\n";
        let messages = check(&Tree::of(&[(MANIFEST, manifest)]));
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0].to_string(), "memtrace/Cargo.toml:6: tidy/table.rs has no row for the dependency rand");
    }
}
