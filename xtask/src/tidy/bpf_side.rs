//! Rules for the BPF programs: probes do not import each other, and only the module `emit` accesses the rings.

use proc_macro2::{TokenStream, TokenTree};

use super::paths;
use super::tree::{Source, Tree};
use super::violation::Violation;

const SOURCES: &str = "memtrace-ebpf/src/";
const PROBES: &str = "memtrace-ebpf/src/probes/";

/// File of the module that declares the rings and writes to them.
const EMIT: &str = "memtrace-ebpf/src/emit.rs";

/// Folder with the submodules of `emit`.
const PARTS_OF_EMIT: &str = "memtrace-ebpf/src/emit/";

/// Prefixes of ring identifiers: the map, its type and the BPF helpers.
const RING_NAMES: [&str; 3] = ["RINGS", "RingBuf", "bpf_ringbuf_"];

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    tree.rust_below(SOURCES).flat_map(|source| [probe_imports(source), ring_names(source)].concat()).collect()
}

fn probe_imports(source: &Source) -> Vec<Violation> {
    let Some(file) = source.path.strip_prefix(PROBES) else { return Vec::new() };
    let probe = file.strip_suffix(".rs").unwrap_or(file).split('/').next().unwrap_or(file);
    let module = ["probes", probe].map(String::from);
    let Ok(paths) = paths::in_text(&source.text, &module) else {
        return vec![Violation::new(source, 0, "not Rust")];
    };
    paths
        .iter()
        .filter(|path| path.segments.starts_with(&["crate", "probes"].map(String::from)))
        .filter(|path| path.segments.get(2).is_some_and(|other| other != probe))
        .map(|path| {
            Violation::new(
                source,
                path.line,
                format!("a probe must not import another probe: {}", path.segments.join("::")),
            )
        })
        .collect()
}

fn ring_names(source: &Source) -> Vec<Violation> {
    if source.path == EMIT || source.path.starts_with(PARTS_OF_EMIT) {
        return Vec::new();
    }
    let Ok(tokens) = source.text.parse::<TokenStream>() else { return Vec::new() };
    let mut violations = Vec::new();
    each_ident(tokens, &mut |name, line| {
        if RING_NAMES.iter().any(|ring| name.starts_with(ring)) {
            violations.push(Violation::new(source, line, format!("only emit may access a ring: {name}")));
        }
    });
    violations
}

fn each_ident(tokens: TokenStream, see: &mut impl FnMut(&str, usize)) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => see(&ident.to_string(), ident.span().start().line),
            TokenTree::Group(group) => each_ident(group.stream(), see),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, text: &str) -> Vec<String> {
        check(&Tree::of(&[(path, text)])).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn probes_do_not_import_each_other() {
        let text = "use super::process::exit;";
        assert_eq!(
            messages("memtrace-ebpf/src/probes/heap.rs", text),
            ["a probe must not import another probe: crate::probes::process::exit"]
        );
        assert_eq!(messages("memtrace-ebpf/src/probes/heap.rs", "use crate::emit::alloc;"), [""; 0]);
    }

    #[test]
    fn only_emit_accesses_rings() {
        let text = "use crate::maps::RINGS;";
        assert_eq!(messages("memtrace-ebpf/src/stack.rs", text), ["only emit may access a ring: RINGS"]);
        assert_eq!(
            messages("memtrace-ebpf/src/loss.rs", "fn f() { unsafe { bpf_ringbuf_submit(p, 0) } }"),
            ["only emit may access a ring: bpf_ringbuf_submit"]
        );
        assert_eq!(messages("memtrace-ebpf/src/emit.rs", text), [""; 0]);
        assert_eq!(messages("memtrace-ebpf/src/emit/part.rs", text), [""; 0]);
    }
}
