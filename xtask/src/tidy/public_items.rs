//! Rule: a library crate exports an item only if another package uses it. The compiler reports dead code only within a
//! crate.
//!
//! Names are compared and not resolved. So an item counts as used if another package uses anything of the same name.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{ImplItem, Item, ItemImpl, Type, UseRename, UseTree, Visibility};

use super::product::{self, ProductFile};
use super::tree::{Source, Tree};
use super::violation::Violation;

/// Source folders of the crates without users outside of this workspace.
const INTERNAL: [&str; 5] =
    ["crates/history/src/", "crates/host/src/", "crates/model/src/", "crates/object/src/", "crates/report/src/"];

/// Public item of a crate. A renaming `use` and the `impl` of a trait are included, because they need public items.
struct PublicItem<'a> {
    name: String,
    source: &'a Source,
    /// Line of the public item, from 1; `None` for a `use` or an `impl`.
    line: Option<usize>,
    /// Names in the declaration. A user of the item needs them too.
    names: BTreeSet<String>,
}

pub(super) fn check(tree: &Tree) -> Vec<Violation> {
    let names = names_by_package(tree);
    INTERNAL.into_iter().flat_map(|folder| check_crate(tree, folder, &names)).collect()
}

fn check_crate(tree: &Tree, folder: &str, names: &BTreeMap<&str, BTreeSet<String>>) -> Vec<Violation> {
    let files = product::files_below(tree, folder);
    let mut items: Vec<PublicItem<'_>> = files.iter().flat_map(public_items).collect();
    let own = package(folder);
    let is_used =
        |item: &PublicItem<'_>| names.iter().any(|(other, names)| *other != own && names.contains(&item.name));
    let (mut used, mut unused): (Vec<_>, Vec<_>) = items.drain(..).partition(is_used);
    // Declarations of used items need the types that they name.
    while let Some(PublicItem { names, .. }) = used.pop() {
        used.extend(unused.extract_if(.., |item| names.contains(&item.name)));
    }
    let violation = |PublicItem { name, source, line, .. }: PublicItem<'_>| {
        Some(Violation::new(source, line?, format!("no other crate uses {name}: make it pub(crate) or remove it")))
    };
    unused.into_iter().filter_map(violation).collect()
}

/// Returns the folder of the package with a file at `path`. Integration tests and benchmarks are packages of their own,
/// because they use their package from outside.
fn package(path: &str) -> &str {
    path.split_once("/src/")
        .map_or_else(|| path.rsplit_once('/').map_or("", |(folder, _)| folder), |(package, _)| package)
}

/// Returns all names in the Rust files of each package.
fn names_by_package(tree: &Tree) -> BTreeMap<&str, BTreeSet<String>> {
    let mut packages: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for source in tree.rust_below("") {
        if let Ok(tokens) = source.text.parse() {
            add_names(tokens, packages.entry(package(&source.path)).or_default());
        }
    }
    packages
}

fn add_names(tokens: TokenStream, names: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                names.insert(name.to_string());
            }
            TokenTree::Group(group) => add_names(group.stream(), names),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn public_items<'a>(file: &ProductFile<'a>) -> Vec<PublicItem<'a>> {
    let mut items = Vec::new();
    for item in &file.syntax.items {
        let mut declare = |name: &syn::Ident, line, declaration| {
            let mut names = BTreeSet::new();
            add_names(declaration, &mut names);
            items.push(PublicItem { name: name.to_string(), source: file.source, line, names });
        };
        match item {
            Item::Use(item) => each_rename(&item.tree, &mut |rename| {
                declare(&rename.rename, None, rename.ident.to_token_stream());
            }),
            Item::Impl(ItemImpl { trait_: Some(_), self_ty, items: members, .. }) => {
                let types = members.iter().filter(|member| matches!(member, ImplItem::Type(_)));
                if let Type::Path(path) = &**self_ty
                    && let Some(name) = path.path.segments.last()
                {
                    declare(&name.ident, None, types.map(ToTokens::to_token_stream).collect());
                }
            }
            _ => {}
        }
        let mut add = |visibility: &Visibility, name: &syn::Ident, declaration: TokenStream| {
            if matches!(visibility, Visibility::Public(_)) {
                declare(name, Some(name.span().start().line), declaration);
            }
        };
        match item {
            Item::Const(item) => add(&item.vis, &item.ident, item.ty.to_token_stream()),
            Item::Static(item) => add(&item.vis, &item.ident, item.ty.to_token_stream()),
            Item::Fn(item) => add(&item.vis, &item.sig.ident, item.sig.to_token_stream()),
            Item::Enum(item) => add(&item.vis, &item.ident, item.to_token_stream()),
            Item::Struct(item) => add(&item.vis, &item.ident, item.to_token_stream()),
            Item::Trait(item) => add(&item.vis, &item.ident, item.to_token_stream()),
            Item::Type(item) => add(&item.vis, &item.ident, item.ty.to_token_stream()),
            Item::Impl(ItemImpl { trait_: None, generics, items: members, .. }) => {
                for member in members {
                    let (visibility, name, declaration) = match member {
                        ImplItem::Const(member) => (&member.vis, &member.ident, member.ty.to_token_stream()),
                        ImplItem::Fn(member) => (&member.vis, &member.sig.ident, member.sig.to_token_stream()),
                        _ => continue,
                    };
                    let bounds = [generics.to_token_stream(), generics.where_clause.to_token_stream()];
                    add(visibility, name, bounds.into_iter().chain([declaration]).collect());
                }
            }
            _ => {}
        }
    }
    items
}

fn each_rename(tree: &UseTree, see: &mut impl FnMut(&UseRename)) {
    match tree {
        UseTree::Path(path) => each_rename(&path.tree, see),
        UseTree::Group(group) => group.items.iter().for_each(|tree| each_rename(tree, see)),
        UseTree::Rename(rename) => see(rename),
        UseTree::Name(_) | UseTree::Glob(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str, other: &str) -> Vec<String> {
        let files = [("crates/model/src/a.rs", text), ("memtrace/src/main.rs", other)];
        check(&Tree::of(&files)).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn item_without_a_user_is_a_violation() {
        let text =
            "pub struct A; impl A { pub fn b(&self) {} fn c() {} } pub(crate) fn d() {} #[cfg(test)] pub fn e() {}";
        let unused = |name| format!("no other crate uses {name}: make it pub(crate) or remove it");
        assert_eq!(messages(text, ""), ["A", "b"].map(unused));
        assert_eq!(messages(text, "use memtrace_model::A;"), [unused("b")]);
        assert_eq!(messages(text, "fn f(a: &memtrace_model::A) { a.b() }"), [""; 0]);
    }

    #[test]
    fn types_in_declarations_of_used_items_are_used() {
        let text = "pub struct A { pub b: B } pub struct B(pub C); pub enum C { D } pub struct E;";
        assert_eq!(
            messages(text, "use memtrace_model::A;"),
            ["no other crate uses E: make it pub(crate) or remove it"]
        );
    }

    #[test]
    fn item_with_another_name_outside_is_used() {
        assert_eq!(messages("mod a; pub use a::f as g; pub fn f() {}", "use memtrace_model::g;"), [""; 0]);
    }

    #[test]
    fn types_of_traits_are_used() {
        let text = "pub struct A; pub struct E; impl FromStr for A { type Err = E; }";
        assert_eq!(messages(text, "use memtrace_model::A;"), [""; 0]);
    }

    #[test]
    fn tests_and_benchmarks_of_a_package_are_users() {
        let files = [("crates/model/src/a.rs", "pub fn f() {}"), ("crates/model/benches/f.rs", "memtrace_model::f()")];
        assert!(check(&Tree::of(&files)).is_empty());
    }
}
