//! Recognizes library functions of Rust by their names, as `rustc-demangle` and debug information write them:
//! `alloc::vec::Vec<T,A>::reserve`, `<alloc::string::String>::push_str`, `<u64 as core::fmt::Display>::fmt`.

use super::nesting::nested;

/// Crates of the library. User crates cannot have these names.
const CRATES: &[&str] = &[
    "core",
    "alloc",
    "std",
    // `std` implements its maps and sets with this crate. Direct uses by user code count as library code too.
    "hashbrown",
    // Path of the allocator entry points, which rustc mangles since 2025.
    "__rustc",
];

/// Prefixes of the allocator entry points, which older versions of rustc leave unmangled. The names are reserved.
const ENTRIES: &[&str] = &["__rust_", "__rdl_", "__rg_"];

/// Prefix of traits that only the compiler implements. Functions of these traits are never user code, because the
/// body of a closure has another name.
const CALLS: &str = "core::ops::function::Fn";

/// Returns true if a function of this name belongs to the library.
pub(super) fn is_library(name: &str) -> bool {
    if let Some(qualified) = name.strip_prefix('<') {
        let Some((end, ..)) = nested(qualified).find(|(_, _, depth)| *depth < 0) else { return false };
        return match split_as(&qualified[..end]) {
            (owner, Some(of_trait)) => implements(owner, of_trait),
            (owner, None) => owner_of(owner) != Owner::User,
        };
    }
    ENTRIES.iter().any(|entry| name.starts_with(entry)) || crate_of(name).is_some_and(is_library_crate)
}

/// Returns true if `<owner as of_trait>::f` belongs to the library. The orphan rules restrict the crates that can
/// contain an implementation. In doubt, the function counts as user code, because user functions must not be hidden.
fn implements(owner: &str, of_trait: &str) -> bool {
    if of_trait.starts_with(CALLS) {
        return true;
    }
    // A trait with a primitive owner is defined in an inherent function of that type, such as `<[_]>::to_vec_in`.
    // Only the library can define such functions.
    let is_library_trait = match owner_of(of_trait) {
        Owner::Library => true,
        Owner::Language => of_trait.starts_with('<'),
        Owner::User => false,
    };
    if !is_library_trait || owner_of(owner) == Owner::User {
        return false;
    }
    // `String as From<mine::T>` is user code. `Vec<mine::T> as FromIterator<mine::T>` is library code for any type.
    names_user(owner) || !names_user(of_trait)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Library,
    User,
    /// A primitive type or a generic parameter.
    Language,
}

/// Returns the owner of a type or trait. A reference has the owner of the referenced type, because traits can be
/// implemented for references to a crate's own types. An item inside a function, such as
/// `<[_]>::to_vec_in::ConvertVec`, has the owner of the function.
fn owner_of(of_type: &str) -> Owner {
    let mut of_type = of_type;
    loop {
        let rest = ["&", "mut ", "dyn ", "<"].iter().find_map(|prefix| of_type.strip_prefix(prefix));
        let rest =
            rest.or_else(|| of_type.strip_prefix('\'').and_then(|life| life.split_once(' ')).map(|(_, rest)| rest));
        match rest {
            Some(rest) => of_type = rest,
            None => break,
        }
    }
    match crate_of(of_type) {
        Some(name) if is_library_crate(name) => Owner::Library,
        Some(_) => Owner::User,
        None => Owner::Language,
    }
}

/// Returns the first component of a path; `None` if the path has only one component. The first component can contain a
/// hash: `core[846817f741e54dfd]::fmt`.
fn crate_of(path: &str) -> Option<&str> {
    let end = path.find(|c| !is_word(c)).filter(|end| *end > 0)?;
    let (name, mut rest) = path.split_at(end);
    if let Some(hash) = rest.strip_prefix('[') {
        rest = hash.split_once(']')?.1;
    }
    rest.starts_with("::").then_some(name)
}

fn is_library_crate(name: &str) -> bool {
    CRATES.contains(&name)
}

/// Returns true if `text` contains a path of a user crate.
fn names_user(text: &str) -> bool {
    let mut before = ' ';
    text.char_indices().any(|(index, c)| {
        let starts_path = is_word(c) && !is_word(before) && before != ':';
        before = c;
        starts_path && crate_of(&text[index..]).is_some_and(|name| !is_library_crate(name))
    })
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Splits `T as Trait` into the type and the trait; without ` as `, there is only a type.
fn split_as(inner: &str) -> (&str, Option<&str>) {
    const AS: &str = " as ";
    let outermost = nested(inner).find(|(at, _, depth)| *depth == 0 && inner[*at..].starts_with(AS));
    match outermost {
        Some((at, ..)) => (&inner[..at], Some(&inner[at + AS.len()..])),
        None => (inner, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_library_functions_is_recognized() {
        for name in [
            "alloc::alloc::alloc",
            "alloc::raw_vec::RawVecInner<A>::reserve::do_reserve_and_handle",
            "<alloc::alloc::Global>::alloc_impl",
            "<alloc::vec::Vec<demo::Session>>::push",
            "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            "std::sys::backtrace::__rust_begin_short_backtrace::<demo::run::{closure#0}, ()>",
            "core[846817f741e54dfd]::fmt::write",
            "<core[846817f741e54dfd]::fmt::Formatter>::pad",
            "hashbrown::raw::RawTable<T,A>::reserve_rehash",
            "<u64 as core::fmt::Display>::fmt",
            "<&mut W as core::fmt::Write::write_fmt::SpecWriteFmt>::spec_write_fmt",
            "<T as alloc::string::SpecToString>::spec_to_string",
            "<[demo::Session]>::to_vec",
            "<u8 as <[_]>::to_vec_in::ConvertVec>::to_vec::<alloc::alloc::Global>",
            "<<alloc::boxed::Box<dyn core::error::Error> as core::convert::From<&str>>::from::StringError as core::fmt::Debug>::fmt",
            "<dyn core::any::Any>::is::<demo::Session>",
            "<fn() -> demo::Answer as core::ops::function::FnOnce<()>>::call_once",
            "<alloc::vec::Vec<demo::Row> as core::iter::FromIterator<demo::Row>>::from_iter::<demo::Rows>",
            "<demo::run::{closure#0} as core::ops::function::FnOnce<()>>::call_once::{shim:vtable#0}",
            "__rustc::__rust_alloc",
            "__rust_alloc",
            "__rdl_realloc",
        ] {
            assert!(is_library(name), "{name}");
        }
    }

    #[test]
    fn user_implementations_are_not_library_functions() {
        for name in [
            "main",
            "demo::main",
            "alloc",
            "allocator::pool::take",
            "stdx::io::read",
            "core_affinity::set",
            "demo::alloc::alloc::alloc",
            "<demo::Session>::new",
            "<&demo::Session as core::iter::IntoIterator>::into_iter",
            "<&'a mut demo::Session as core::fmt::Debug>::fmt",
            "<demo::Session as core::clone::Clone>::clone",
            "<dyn demo::Store as core::fmt::Debug>::fmt",
            "<alloc::vec::Vec<T> as demo::Take>::take",
            "<alloc::string::String as core::convert::From<demo::Session>>::from",
            "<demo::Session as <demo::Store>::put::Local>::put",
            "<<demo::Store>::put::Local as core::clone::Clone>::clone",
            "<alloc::vec::Vec<T> as serde::Deserialize>::deserialize",
            "",
            "<",
            "< as >::",
            "::",
        ] {
            assert!(!is_library(name), "{name}");
        }
    }
}
