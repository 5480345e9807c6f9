//! Collects the paths in a Rust file, and resolves them as far as this is possible with the file alone.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{File, ItemMod, ItemUse, Macro, MetaList, Path, UseTree, Visibility};

/// Path in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathRef {
    /// Segments of the path. A path that starts with `self` or `super` is resolved to a path that starts with `crate`.
    pub(super) segments: Vec<String>,
    /// Line of the path, from 1.
    pub(super) line: usize,
    /// Effect of the import, if the path is a leaf of a `use` item.
    pub(super) import: Option<Import>,
}

/// Local effect of a leaf of a `use` item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Import {
    /// Name that the leaf brings into scope; `None` for a glob.
    pub(super) name: Option<String>,
    /// True if the `use` item has a visibility, so that it re-exports the name.
    pub(super) is_public: bool,
}

/// Returns the paths in `text`, the file of the module `module`, such as `["report", "svg"]` for `report/svg.rs`.
///
/// # Errors
///
/// `text` is not Rust.
pub(super) fn in_text(text: &str, module: &[String]) -> syn::Result<Vec<PathRef>> {
    Ok(in_file(&syn::parse_file(text)?, module))
}

/// Returns the paths in `file`, except single names outside of `use`, and paths that start with a module of the file
/// itself.
pub(super) fn in_file(file: &File, module: &[String]) -> Vec<PathRef> {
    let (mut paths, local) = with_local(file, module);
    paths.retain(|path| path.segments.first().is_some_and(|first| !local.contains(first)));
    paths
}

/// Returns the paths in `file`, except single names outside of `use`, and the names of the modules of the file itself.
pub(super) fn with_local(file: &File, module: &[String]) -> (Vec<PathRef>, BTreeSet<String>) {
    let mut collector = Collector { module: module.to_vec(), paths: Vec::new(), local: BTreeSet::new() };
    collector.visit_file(file);
    (collector.paths, collector.local)
}

struct Collector {
    module: Vec<String>,
    paths: Vec<PathRef>,
    /// Names of the modules of this file. They hide crates of the same name.
    local: BTreeSet<String>,
}

impl Collector {
    fn add(&mut self, segments: Vec<String>, line: usize, import: Option<Import>) {
        if let Some(segments) = resolve(segments, &self.module) {
            self.paths.push(PathRef { segments, line, import });
        }
    }

    fn add_use(&mut self, tree: &UseTree, prefix: &[String], is_public: bool) {
        let with = |name: &syn::Ident| [prefix, &[name.to_string()]].concat();
        let import = |name: &syn::Ident| Some(Import { name: Some(name.to_string()), is_public });
        match tree {
            UseTree::Path(path) => self.add_use(&path.tree, &with(&path.ident), is_public),
            // `use a::{self}` imports `a`.
            UseTree::Name(name) if name.ident == "self" && !prefix.is_empty() => {
                let import = Import { name: prefix.last().cloned(), is_public };
                self.add(prefix.to_vec(), name.span().start().line, Some(import));
            }
            UseTree::Name(name) => self.add(with(&name.ident), name.span().start().line, import(&name.ident)),
            UseTree::Rename(rename) => {
                self.add(with(&rename.ident), rename.span().start().line, import(&rename.rename));
            }
            UseTree::Glob(glob) => {
                self.add(prefix.to_vec(), glob.span().start().line, Some(Import { name: None, is_public }));
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, prefix, is_public);
                }
            }
        }
    }

    /// Adds the paths in the arguments of a macro. These are tokens, so every run of names with `::` between them
    /// counts as a path.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut run: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end_run(&mut run, line);
                        line = ident.span().start().line;
                    }
                    run.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.end_run(&mut run, line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.end_run(&mut run, line);
    }

    fn end_run(&mut self, run: &mut Vec<String>, line: usize) {
        if run.len() > 1 {
            self.add(std::mem::take(run), line, None);
        }
        run.clear();
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.local.insert(item.ident.to_string());
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_use(&item.tree, &[], !matches!(item.vis, Visibility::Inherited));
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.segments.len() > 1 {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.add(segments, path.span().start().line, None);
        }
        visit::visit_path(self, path);
    }

    fn visit_meta_list(&mut self, list: &'ast MetaList) {
        self.add_tokens(list.tokens.clone());
        visit::visit_meta_list(self, list);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.add_tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

/// Resolves `self` and `super` to a path from `crate`; returns `None` for a path that leaves the crate.
fn resolve(segments: Vec<String>, module: &[String]) -> Option<Vec<String>> {
    let mut depth = module.len();
    let mut rest = segments.as_slice();
    match rest.first()?.as_str() {
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|segment| segment == "super") {
                depth = depth.checked_sub(1)?;
                rest = &rest[1..];
            }
        }
        _ => return Some(segments),
    }
    Some([&[String::from("crate")], &module[..depth], rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str, module: &[&str]) -> Vec<String> {
        let module: Vec<String> = module.iter().map(ToString::to_string).collect();
        in_text(text, &module).unwrap().iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn use_group_is_expanded() {
        let paths = paths("use crate::{model::{Bytes, Pid as P}, ledger::*};", &["report"]);
        assert_eq!(paths, ["crate::model::Bytes", "crate::model::Pid", "crate::ledger"]);
    }

    #[test]
    fn relative_paths_are_resolved() {
        assert_eq!(paths("use super::Format;", &["report", "svg"]), ["crate::report::Format"]);
        assert_eq!(paths("use super::super::ledger::Ledger;", &["report", "svg"]), ["crate::ledger::Ledger"]);
        assert_eq!(paths("use self::parts::A;", &["report"]), ["crate::report::parts::A"]);
    }

    #[test]
    fn nested_module_is_one_level_deeper() {
        assert_eq!(paths("mod tests { use super::super::x; }", &["report", "svg"]), ["crate::report::x"]);
    }

    #[test]
    fn types_expressions_and_macro_arguments_are_collected() {
        let text = "fn f(a: aya::Ebpf) { tokio::spawn(1); assert_eq!(g(crate::kernel::N), vec![object::read::X]); }";
        let paths = paths(text, &["report"]);
        for path in ["aya::Ebpf", "tokio::spawn", "crate::kernel::N", "object::read::X"] {
            assert!(paths.iter().any(|other| other == path), "{path} is not in {paths:?}");
        }
    }

    #[test]
    fn derives_are_collected_but_not_variables() {
        assert_eq!(paths("#[derive(serde::Serialize)] struct S;", &["model"]), ["serde::Serialize"]);
        assert_eq!(paths("fn f(object: u8) -> u8 { object }", &["report"]), [""; 0]);
    }

    #[test]
    fn module_of_the_file_hides_a_crate() {
        assert_eq!(paths("mod object; use object::Elf;", &["target"]), [""; 0]);
    }

    #[test]
    fn path_has_its_line() {
        assert_eq!(in_text("\n\nuse aya::Ebpf;", &[]).unwrap()[0].line, 3);
    }
}
