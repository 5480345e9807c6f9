//! Recognizes library functions of C++ by their demangled names. Demangled names include the parameters, and for
//! templates the return type.

use super::nesting::nested;

/// Namespaces of the library. The standard reserves `std`, and all names with two underscores.
const NAMESPACES: &[&str] = &["std::", "__gnu_cxx::", "__cxxabiv1::"];

/// Start of `operator new` and `operator new[]`. Operators of a class have a path before `operator`.
const ALLOCATION: &str = "operator new";

/// Thread routine of libstdc++. Its name is a C name.
const THREAD: &str = "execute_native_thread_routine";

/// Prefix of functions that compilers call for exceptions and initialization (Itanium C++ ABI, sections 2.4 and 3.3).
const ABI: &str = "__cxa_";

/// Prefix of libgcc's thread functions. libstdc++ calls pthreads through them (libgcc/gthr-posix.h).
const GTHREAD: &str = "__gthread_";

/// Returns the qualified name of the function in a C++ name, without return type and parameters. Names of operators
/// keep their parameters. Returns `None` for names without parameters, such as names of Rust and C.
pub(super) fn function(name: &str) -> Option<&str> {
    let mut start = 0;
    for (at, c, _) in nested(name).filter(|(_, _, depth)| *depth == 0) {
        let rest = &name[at..];
        match c {
            ' ' => start = at + 1,
            // The operator's name may contain brackets and spaces.
            'o' if is_operator(rest) && (at == start || name[..at].ends_with(':')) => return Some(&name[start..]),
            '(' if !rest.starts_with("(anonymous namespace)") => return Some(&name[start..at]),
            _ => {}
        }
    }
    None
}

/// Returns true if a C++ function belongs to the library. `function`: qualified name, as [`function`] returns it.
pub(super) fn is_library(function: &str) -> bool {
    NAMESPACES.iter().any(|namespace| function.starts_with(namespace)) || is_allocation(function)
}

/// Returns true if a function with this C name belongs to the C++ library.
pub(super) fn is_runtime(name: &str) -> bool {
    name == THREAD || name.starts_with(ABI) || name.starts_with(GTHREAD)
}

fn is_allocation(function: &str) -> bool {
    function.strip_prefix(ALLOCATION).is_some_and(|rest| !rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()))
}

fn is_operator(text: &str) -> bool {
    text.strip_prefix("operator")
        .and_then(|rest| rest.chars().next())
        .is_some_and(|next| next != ':' && next != '_' && !next.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_between_return_type_and_parameters() {
        for (name, expected) in [
            ("demo::grow(int)", "demo::grow"),
            (
                "void std::vector<int, std::allocator<int> >::_M_realloc_append<int>(int&&)",
                "std::vector<int, std::allocator<int> >::_M_realloc_append<int>",
            ),
            ("std::__cxx11::basic_string<char> demo::text<int>(int)", "demo::text<int>"),
            ("demo::(anonymous namespace)::grow(int)", "demo::(anonymous namespace)::grow"),
            ("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()(int) const"),
            (
                "std::ostream& std::operator<< <std::char_traits<char> >(std::ostream&, char const*)",
                "std::operator<< <std::char_traits<char> >(std::ostream&, char const*)",
            ),
            ("operator new(unsigned long)", "operator new(unsigned long)"),
            ("demo::Text::operator std::string() const", "demo::Text::operator std::string() const"),
        ] {
            assert_eq!(function(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn c_and_rust_names_are_not_cpp_names() {
        for name in [
            "main",
            "g_malloc",
            "operator_table_grow",
            "alloc::raw_vec::RawVec<T,A>::reserve",
            "<alloc::boxed::Box<dyn core::ops::function::FnOnce<(), Output = ()>> as core::ops::function::FnOnce<()>>::call_once",
            "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            "std::thread::lifecycle::spawn_unchecked::{{closure}}",
            "std::operators::grow",
            "",
        ] {
            assert_eq!(function(name), None, "{name}");
        }
    }

    #[test]
    fn cpp_library_functions_are_recognized_by_namespace() {
        let is_library = |name| function(name).map(is_library);
        for name in [
            "operator new(unsigned long)",
            "operator new[](unsigned long, std::nothrow_t const&)",
            "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::_M_create(unsigned long&, unsigned long)",
            "__gnu_cxx::new_allocator<int>::allocate(unsigned long, void const*)",
            "std::thread::_State_impl<std::thread::_Invoker<std::tuple<main::{lambda()#1}> > >::_M_run()",
            "void std::__invoke_impl<void, main::{lambda()#1}>(std::__invoke_other, main::{lambda()#1}&&)",
        ] {
            assert_eq!(is_library(name), Some(true), "{name}");
        }
        for name in [
            "demo::Pool::operator new(unsigned long)",
            "std::__cxx11::basic_string<char> demo::text<int>(int)",
            "main::{lambda()#1}::operator()() const",
            "stdx::grow(std::vector<int>&)",
            "operator newest(int)",
        ] {
            assert_eq!(is_library(name), Some(false), "{name}");
        }
        for name in ["__cxa_allocate_exception", "execute_native_thread_routine", "__gthread_once"] {
            assert!(is_runtime(name), "{name}");
        }
        assert!(!is_runtime("main"));
    }
}
