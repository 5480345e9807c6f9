//! Import graph of a crate. An edge leads from a file that uses an item to the file that defines the item.
//!
//! A re-export is followed to the file that defines the item. Code under `#[cfg(test)]` is ignored.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Item, ItemUse, Macro};

use super::paths::{self, PathRef};
use super::product::{self, ProductFile};
use super::tree::{Source, Tree};

/// Maximum number of re-exports that are followed from an import to the definition.
const MAX_REEXPORTS: usize = 16;

/// Files of a crate, and their imports.
pub(super) struct FileGraph<'a> {
    files: Vec<FileFacts<'a>>,
    /// Index in `files` of each module path.
    modules: BTreeMap<Vec<String>, usize>,
}

/// Use of an item that another file defines.
pub(super) struct Edge {
    /// Index of the file that uses the item.
    pub(super) from: usize,
    /// Index of the file that defines the item.
    pub(super) to: usize,
    /// Line of the use, from 1.
    pub(super) line: usize,
    /// Resolved path of the item.
    pub(super) path: String,
}

struct FileFacts<'a> {
    source: &'a Source,
    module: Vec<String>,
    paths: Vec<PathRef>,
    definitions: BTreeSet<String>,
    /// Modules that the file declares.
    children: BTreeSet<String>,
    /// Names that the code uses as a path or as its first segment, outside of `use`.
    names: BTreeSet<String>,
}

impl<'a> FileGraph<'a> {
    /// Builds the graph of the crate with sources below `folder`.
    pub(super) fn of_crate(tree: &'a Tree, folder: &'a str) -> Self {
        let files: Vec<_> = product::files_below(tree, folder).into_iter().map(FileFacts::collect).collect();
        let modules = files.iter().enumerate().map(|(index, file)| (file.module.clone(), index)).collect();
        Self { files, modules }
    }

    /// Returns the number of files.
    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns the module path of the file with this index.
    pub(super) fn module(&self, index: usize) -> &[String] {
        &self.files[index].module
    }

    /// Returns the file with this index.
    pub(super) fn source(&self, index: usize) -> &'a Source {
        self.files[index].source
    }

    /// Returns the imports between different files.
    pub(super) fn edges(&self) -> Vec<Edge> {
        let of_file = |(from, file): (usize, &FileFacts<'_>)| {
            let edge = |path: &PathRef| {
                let to = self.target(file, path)?;
                Some(Edge { from, to, line: path.line, path: path.segments.join("::") })
            };
            file.paths.iter().filter_map(edge).filter(|edge| edge.from != edge.to).collect::<Vec<_>>()
        };
        self.files.iter().enumerate().flat_map(of_file).collect()
    }

    /// Returns the file that defines the item that `path` names in `file`.
    fn target(&self, file: &FileFacts<'_>, path: &PathRef) -> Option<usize> {
        let absolute = file.absolute(&path.segments, 0)?;
        match &path.import {
            // A re-export is a use only if the file itself uses the name.
            Some(import) if import.is_public && !import.name.as_ref().is_some_and(|name| file.names.contains(name)) => {
                None
            }
            Some(import) if import.name.is_none() && self.modules.contains_key(&absolute) => {
                self.modules.get(&absolute).copied()
            }
            _ => self.definition(&absolute, 0),
        }
    }

    /// Returns the file that defines the item at `path`, a path from the root of the crate. Returns `None` for a
    /// module, because the code that uses the module has further paths to its items.
    fn definition(&self, path: &[String], depth: usize) -> Option<usize> {
        if depth > MAX_REEXPORTS {
            return None;
        }
        // A function may have the same name as a module, so the whole path is also looked up as an item.
        let (length, index) =
            (0..path.len()).rev().find_map(|length| Some((length, *self.modules.get(&path[..length])?)))?;
        self.definition_in(index, &path[length..], depth)
    }

    /// Returns the file that defines `item`, an item of the module in the file `index`.
    fn definition_in(&self, index: usize, item: &[String], depth: usize) -> Option<usize> {
        let file = &self.files[index];
        let (name, rest) = item.split_first()?;
        if file.definitions.contains(name) {
            return Some(index);
        }
        if let Some(import) = file.import(name) {
            let reexported = [import.segments.as_slice(), rest].concat();
            // An item of another crate has no file in this graph.
            return self.definition(&file.absolute(&reexported, depth)?, depth + 1);
        }
        if file.children.contains(name) {
            return None;
        }
        let globs = file.paths.iter().filter(|path| path.import.as_ref().is_some_and(|import| import.name.is_none()));
        let through_glob = globs.into_iter().find_map(|glob| {
            let module = file.absolute(&glob.segments, depth)?;
            let target = *self.modules.get(&module)?;
            self.files[target].defines_or_imports(name).then(|| self.definition_in(target, item, depth + 1))?
        });
        // If no definition is found, a macro in this file is assumed to define the item.
        through_glob.or(Some(index))
    }
}

impl<'a> FileFacts<'a> {
    fn collect(file: ProductFile<'a>) -> Self {
        let ProductFile { source, module, syntax, .. } = file;
        let (paths, _) = paths::with_local(&syntax, &module);
        let mut names = Names { names: BTreeSet::new() };
        names.visit_file(&syntax);
        let is_child = |item: &&Item| matches!(item, Item::Mod(item) if item.content.is_none());
        let (children, items): (Vec<&Item>, Vec<&Item>) = syntax.items.iter().partition(is_child);
        Self {
            source,
            module,
            paths,
            definitions: items.into_iter().filter_map(name_of).collect(),
            children: children.into_iter().filter_map(name_of).collect(),
            names: names.names,
        }
    }

    fn import(&self, name: &str) -> Option<&PathRef> {
        let imports = |path: &&PathRef| path.import.as_ref().is_some_and(|import| import.name.as_deref() == Some(name));
        self.paths.iter().find(imports)
    }

    fn defines_or_imports(&self, name: &str) -> bool {
        self.definitions.contains(name) || self.import(name).is_some()
    }

    /// Converts a path to a path from the root of the crate, without `crate`; `None` for a path into another crate.
    fn absolute(&self, segments: &[String], depth: usize) -> Option<Vec<String>> {
        let (first, rest) = segments.split_first()?;
        if first == "crate" {
            return Some(rest.to_vec());
        }
        if self.children.contains(first) || self.definitions.contains(first) {
            return Some([self.module.as_slice(), segments].concat());
        }
        let import = self.import(first).filter(|import| import.segments != segments && depth < MAX_REEXPORTS)?;
        self.absolute(&[import.segments.as_slice(), rest].concat(), depth + 1)
    }
}

/// Collector of the names that code uses as a path or as its first segment, outside of `use`.
struct Names {
    names: BTreeSet<String>,
}

impl Names {
    fn add_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => drop(self.names.insert(ident.to_string())),
                TokenTree::Group(group) => self.add_tokens(group.stream()),
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_use(&mut self, _: &'ast ItemUse) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.names.extend(path.segments.first().map(|segment| segment.ident.to_string()));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast Macro) {
        self.add_tokens(item.tokens.clone());
        visit::visit_macro(self, item);
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Mod(item) => &item.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the imports of a crate as `from -> to`, without the folder and `.rs`.
    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<String> = files.iter().map(|(path, _)| format!("c/src/{path}.rs")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().zip(files).map(|(path, (_, text))| (path.as_str(), *text)).collect();
        let tree = Tree::of(&files);
        let graph = FileGraph::of_crate(&tree, "c/src/");
        let name = |index| graph.source(index).path["c/src/".len()..].trim_end_matches(".rs").to_owned();
        graph.edges().iter().map(|edge| format!("{} -> {}", name(edge.from), name(edge.to))).collect()
    }

    #[test]
    fn an_import_leads_to_the_file_that_defines_the_item() {
        let files = [("lib", "mod a; mod b;"), ("a", "use crate::b::B;"), ("b", "pub struct B;")];
        assert_eq!(edges(&files), ["a -> b"]);
        let files = [("lib", "mod a; mod b;"), ("a", "fn f() { crate::b::g(); }"), ("b", "pub fn g() {}")];
        assert_eq!(edges(&files), ["a -> b"]);
    }

    #[test]
    fn a_reexport_is_followed_and_is_no_use() {
        let parent = ("a", "mod x; mod y; pub use x::X; pub(crate) use self::y::Y as Z;");
        let children = [("a/x", "pub struct X;"), ("a/y", "use super::X; pub struct Y;")];
        let files = [parent, children[0], children[1], ("b", "use crate::a::{X, Z};")];
        assert_eq!(edges(&files), ["a/y -> a/x", "b -> a/x", "b -> a/y"]);
    }

    #[test]
    fn a_parent_that_uses_what_it_reexports_imports_it() {
        let files = [("a", "mod x; pub use x::X; fn f(_: X) {}"), ("a/x", "pub struct X;")];
        assert_eq!(edges(&files), ["a -> a/x"]);
    }

    #[test]
    fn an_imported_module_is_resolved_at_its_use() {
        let files = [("a", "use crate::b; fn f() { b::x::g(); }"), ("b", "pub mod x;"), ("b/x", "pub fn g() {}")];
        assert_eq!(edges(&files), ["a -> b/x"]);
        let files = [("a", "mod x; fn f() { x::g(); }"), ("a/x", "pub fn g() {}")];
        assert_eq!(edges(&files), ["a -> a/x"]);
        let files = [("a", "mod x; fn f() { assert!(x::g()); }"), ("a/x", "pub fn g() {}")];
        assert_eq!(edges(&files), ["a -> a/x"]);
    }

    #[test]
    fn a_function_may_have_the_name_of_its_module() {
        let files = [("a", "mod x; pub use x::x;"), ("a/x", "pub fn x() {}"), ("b", "use crate::a::x;")];
        assert_eq!(edges(&files), ["b -> a/x"]);
        let files = [
            ("a", "mod x; pub use x::x;"),
            ("a/x", "mod y; mod z; use y::f; pub fn x() {}"),
            ("a/x/y", "use super::z::{self, G}; fn f() { z::g() }"),
            ("a/x/z", "pub fn g() {}"),
        ];
        assert_eq!(edges(&files), ["a/x -> a/x/y", "a/x/y -> a/x/z", "a/x/y -> a/x/z"]);
    }

    #[test]
    fn globs_and_macros_are_resolved_as_far_as_possible() {
        let files = [("a", "pub use b::*; mod b;"), ("a/b", "pub struct B;"), ("c", "use crate::a::B;")];
        assert_eq!(edges(&files), ["c -> a/b"]);
        assert_eq!(edges(&[("a", "ids! { A }"), ("c", "use crate::a::A;")]), ["c -> a"]);
        assert_eq!(edges(&[("a", "pub struct A;"), ("c", "use crate::a::*;")]), ["c -> a"]);
    }

    #[test]
    fn test_code_and_other_crates_are_ignored() {
        let test = "pub struct A; #[cfg(test)] mod tests { use crate::b::B; } #[cfg(test)] use crate::b::B;";
        assert_eq!(edges(&[("a", test), ("b", "pub struct B;")]), [""; 0]);
        let files = [("a", "#[cfg(test)] mod tests;"), ("a/tests", "use crate::b::B;"), ("b", "pub struct B;")];
        assert_eq!(edges(&files), [""; 0]);
        let files = [("a", "pub use aya::Ebpf; use b::X;"), ("a/b", "use super::Ebpf;"), ("c", "use crate::a::Ebpf;")];
        assert_eq!(edges(&files), [""; 0]);
    }
}
