//! The rooms of memtrace import what the table allows, and nothing else.

use super::file_graph;
use super::paths::{self, PathRef};
use super::table::{self, Rooms};
use super::tree::{Source, Tree};
use super::{Violation, table::Room};

const SOURCES: &str = "memtrace/src/";
const MANIFEST: &str = "memtrace/Cargo.toml";

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let mut found = check_dependencies(tree);
    for source in tree.rust_below(SOURCES) {
        found.extend(check_file(source));
    }
    found
}

/// A dependency that the table does not have could be named by anyone.
fn check_dependencies(tree: &Tree) -> Vec<Violation> {
    let Some(manifest) = tree.at(MANIFEST) else { return Vec::new() };
    dependencies(&manifest.text)
        .into_iter()
        .filter(|(_, name)| table::foreign(std::slice::from_ref(name)).is_none())
        .map(|(line, name)| Violation::new(manifest, line, format!("the table of imports has no row for {name}")))
        .collect()
}

/// The names in `[dependencies]` as code writes them, with their lines.
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

fn check_file(source: &Source) -> Vec<Violation> {
    let module = file_graph::module_of(source.path.strip_prefix(SOURCES).unwrap_or(&source.path));
    let paths = match paths::in_text(&source.text, &module) {
        Ok(paths) => paths,
        Err(error) => return vec![Violation::new(source, error.span().start().line, format!("not Rust: {error}"))],
    };
    // The crate's own root, its program and its tables of contents join the rooms.
    let Some(name) = module.first() else { return Vec::new() };
    let Some(room) = table::room(name) else {
        return vec![Violation::new(source, 0, format!("the table of imports has no row for the room {name}"))];
    };
    paths.iter().filter_map(|path| Some(Violation::new(source, path.line, refusal(room, path)?))).collect()
}

/// Why `room` may not name that, if it may not.
fn refusal(room: &Room, path: &PathRef) -> Option<String> {
    let shown = path.segments.join("::");
    if path.segments[0] == "crate" {
        let inside = &path.segments[1..];
        let other = table::room(inside.first()?)?;
        let allowed = other.name == room.name || room.imports.iter().any(|import| table::starts_with(inside, import));
        return (!allowed).then(|| format!("{} may not import {shown}", room.name));
    }
    let foreign = table::foreign(&path.segments)?;
    let allowed = match foreign.rooms {
        Rooms::Any => true,
        Rooms::Only(rooms) => rooms.contains(&room.name),
        Rooms::ConstantsFor(rooms, constants) => {
            rooms.contains(&room.name) || constants.contains(&room.name) && is_constant(path.segments.last()?)
        }
    };
    (!allowed).then(|| format!("{} may not name {shown}", room.name))
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
    fn an_engine_may_not_import_another() {
        let found = messages("memtrace/src/report/svg.rs", "use crate::symbolize::Symbolizer;");
        assert_eq!(found, ["report may not import crate::symbolize::Symbolizer"]);
    }

    #[test]
    fn a_way_round_by_super_is_seen() {
        let found = messages("memtrace/src/report.rs", "use super::kernel::Rings;");
        assert_eq!(found, ["report may not import crate::kernel::Rings"]);
    }

    #[test]
    fn every_room_may_import_itself_and_the_model() {
        assert_eq!(messages("memtrace/src/report/svg.rs", "use super::Format; use crate::model::Bytes;"), [""; 0]);
    }

    #[test]
    fn the_model_imports_no_room() {
        assert_eq!(messages("memtrace/src/model/id.rs", "use crate::report::Format;").len(), 1);
    }

    #[test]
    fn only_the_kernel_room_names_aya() {
        assert_eq!(messages("memtrace/src/kernel/load.rs", "use aya::Ebpf;"), [""; 0]);
        assert_eq!(messages("memtrace/src/session.rs", "use aya::Ebpf;"), ["session may not name aya::Ebpf"]);
        assert_eq!(messages("memtrace/src/session.rs", "fn f(_: &aya::Ebpf) {}"), ["session may not name aya::Ebpf"]);
    }

    #[test]
    fn only_the_kernel_room_names_the_wire_and_the_model_its_constants() {
        let wire = "use memtrace_common::wire::AllocRecord;";
        assert_eq!(messages("memtrace/src/kernel/decode.rs", wire), [""; 0]);
        assert_eq!(
            messages("memtrace/src/ledger.rs", wire),
            ["ledger may not name memtrace_common::wire::AllocRecord"]
        );
        assert_eq!(
            messages("memtrace/src/model/event.rs", wire),
            ["model may not name memtrace_common::wire::AllocRecord"]
        );
        assert_eq!(messages("memtrace/src/model/time.rs", "use memtrace_common::wire::TICK_SHIFT;"), [""; 0]);
    }

    #[test]
    fn every_foreign_crate_keeps_to_its_rooms() {
        for (name, room) in [
            ("blazesym", "report"),
            ("inferno", "symbolize"),
            ("clap", "session"),
            ("tokio", "kernel"),
            ("iced_x86", "ledger"),
            ("object", "kernel"),
        ] {
            let found = messages(&format!("memtrace/src/{room}.rs"), &format!("use {name}::Anything;"));
            assert_eq!(found, [format!("{room} may not name {name}::Anything")]);
        }
    }

    #[test]
    fn the_command_line_sees_of_the_reports_their_formats_alone() {
        assert_eq!(messages("memtrace/src/cli.rs", "use crate::report::Format;"), [""; 0]);
        assert_eq!(
            messages("memtrace/src/cli.rs", "use crate::report::write;"),
            ["cli may not import crate::report::write"]
        );
    }

    #[test]
    fn a_room_without_a_row_is_a_violation() {
        let found = messages("memtrace/src/helpers.rs", "");
        assert_eq!(found, ["the table of imports has no row for the room helpers"]);
    }

    #[test]
    fn a_dependency_without_a_row_is_a_violation() {
        let manifest =
            "[package]\nname = \"memtrace\"\n[dependencies]\naya-log.workspace = true\n\nrand = \"1\"\n[lints]\n";
        let found = check(&Tree::of(&[(MANIFEST, manifest)]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "memtrace/Cargo.toml:6: the table of imports has no row for rand");
    }

    #[test]
    fn what_is_not_rust_is_a_violation() {
        assert_eq!(messages("memtrace/src/report.rs", "fn (").len(), 1);
    }
}
