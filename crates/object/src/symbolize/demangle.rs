//! Demangling of symbols.
//!
//! Only names with the prefix of a mangling scheme are demangled. Without this check, the grammar of the C++ ABI
//! would accept names of C functions: `f` is the type `float`, and `St` is the namespace `std`.

use std::borrow::Cow;

/// Prefixes of mangled names: `_Z` of the Itanium C++ ABI and of legacy Rust, `_R` of Rust v0, and `__Z`, which is
/// `_Z` with the underscore that some platforms add.
const PREFIXES: [&str; 3] = ["_Z", "_R", "__Z"];

/// Number of characters at the end of a legacy Rust symbol: `17h`, 16 digits of the hash, and `E`.
const HASH_SUFFIX: usize = 3 + 16 + 1;

/// Returns the demangled name of a C++ or Rust symbol, and any other name unchanged.
pub(super) fn demangle(symbol: &str) -> Cow<'_, str> {
    if !PREFIXES.iter().any(|prefix| symbol.starts_with(prefix)) {
        return Cow::Borrowed(symbol);
    }
    let demangled = if symbol.starts_with("_R") || is_legacy_rust(symbol) { rust(symbol) } else { cpp(symbol) };
    demangled.map_or(Cow::Borrowed(symbol), Cow::Owned)
}

/// Returns true for `_ZN…17h<16 hex digits>E`, with or without a suffix such as `.llvm.1234`.
fn is_legacy_rust(symbol: &str) -> bool {
    // The suffix cannot be found by its period: `..` is a path separator in the name of an implementation.
    symbol.match_indices("17h").any(|(at, _)| {
        let Some((hash, suffix)) = symbol[at..].split_at_checked(HASH_SUFFIX) else { return false };
        let digits = &hash[3..HASH_SUFFIX - 1];
        hash.ends_with('E')
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
            && (suffix.is_empty() || suffix.starts_with('.'))
    })
}

/// Demangles a Rust symbol, without the hash.
fn rust(symbol: &str) -> Option<String> {
    rustc_demangle::try_demangle(symbol).ok().map(|name| format!("{name:#}"))
}

fn cpp(symbol: &str) -> Option<String> {
    cpp_demangle::Symbol::new(symbol).ok()?.demangle().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_a_mangling_prefix_are_unchanged() {
        for name in ["f", "h", "w", "St", "Sa", "i", "v", "main", "RNvC1a1b", "ZN1a1bE", "Z1fv", "_GLOBAL__I_f", ""] {
            assert_eq!(demangle(name), name);
        }
    }

    #[test]
    fn names_that_only_start_like_mangled_ones_are_unchanged() {
        for name in ["_Z", "_R", "__Z", "_Zero", "_Read", "_RESET", "_ZN", "__Zap", "_Z1f\u{e9}", "_ZN17h\u{e9}E"] {
            assert_eq!(demangle(name), name);
        }
    }

    #[test]
    fn each_mangling_scheme_is_demangled() {
        for (symbol, name) in [
            ("_Z1fv", "f()"),
            ("__Z1fv", "f()"),
            ("_ZN5store3addEmi", "store::add(unsigned long, int)"),
            ("_ZN5store3addEmi.cold", "store::add(unsigned long, int) [clone .cold]"),
            ("_ZN7mycrate5cache6insert17h0123456789abcdefE", "mycrate::cache::insert"),
            ("__ZN7mycrate5cache6insert17h0123456789abcdefE", "mycrate::cache::insert"),
            ("_ZN7mycrate5cache6insert17h0123456789abcdefE.llvm.8192", "mycrate::cache::insert"),
            ("_ZN49_$LT$mycrate..Key$u20$as$u20$core..hash..Hash$GT$4hash17h0123456789abcdefE.llvm.77", HASH),
            ("_RNvC7mycrate6insert", "mycrate::insert"),
            ("_RNvC7mycrate6insert.llvm.8192", "mycrate::insert"),
        ] {
            assert_eq!(demangle(symbol), name, "{symbol}");
        }
    }

    const HASH: &str = "<mycrate::Key as core::hash::Hash>::hash";

    #[test]
    fn a_c_plus_plus_name_with_17h_is_not_taken_for_rust() {
        assert_eq!(demangle("_ZN3foo17hashes_everythingEv"), "foo::hashes_everything()");
    }
}
