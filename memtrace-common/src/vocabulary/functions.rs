//! The table of hooked functions.

use super::Signature;

/// Rule by which a function's symbol is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Naming {
    /// A name of the C library, which other allocators have too, some with a prefix.
    Standard,
    /// A name of jemalloc, with the same prefix as its standard names.
    Jemalloc,
    /// A name of mimalloc, with the prefix `mi_`.
    Mimalloc,
    /// A mangled C++ operator.
    Cpp,
    /// A function that rustc calls for the global allocator.
    Rust,
    /// A name that the user has given.
    Hook,
}

impl Naming {
    /// Returns the known prefixes. The user may add prefixes to [`Naming::Standard`] and [`Naming::Jemalloc`].
    #[must_use]
    pub const fn prefixes(self) -> &'static [&'static str] {
        match self {
            // `je_` is common in builds of jemalloc, `_rjem_` is the prefix of its Rust crate, `tc_` that of tcmalloc.
            Self::Standard => &["", "je_", "_rjem_", "mi_", "tc_"],
            Self::Jemalloc => &["", "je_", "_rjem_"],
            Self::Mimalloc => &["mi_"],
            Self::Cpp | Self::Rust | Self::Hook => &[""],
        }
    }
}

/// A hooked function: a row of [`FUNCTIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Name of the symbol, without prefix and version.
    pub name: &'static str,
    /// Calling signature.
    pub signature: Signature,
    /// True if an object without this function is not an allocator.
    pub required: bool,
    /// Rule by which the symbol is found.
    pub naming: Naming,
    /// True if it may throw an exception. A uretprobe would keep the exception from reaching its handler.
    pub throws: bool,
}

impl Function {
    /// Returns the name for reports: C++ operators are demangled.
    #[must_use]
    pub fn display_name(&self) -> &'static str {
        CPP.iter().find(|(name, _)| *name == self.name).map_or(self.name, |(_, shown)| shown)
    }
}

const fn row(name: &'static str, signature: Signature, naming: Naming) -> Function {
    Function { name, signature, required: false, naming, throws: false }
}

const fn required(name: &'static str, signature: Signature) -> Function {
    Function { name, signature, required: true, naming: Naming::Standard, throws: false }
}

const fn throwing(name: &'static str, signature: Signature, naming: Naming) -> Function {
    Function { name, signature, required: false, naming, throws: true }
}

const SIZE0: Signature = Signature::Alloc { size: 0 };
const SIZE1: Signature = Signature::Alloc { size: 1 };
const PRODUCT01: Signature = Signature::AllocProduct { count: 0, size: 1 };
const PRODUCT12: Signature = Signature::AllocProduct { count: 1, size: 2 };
const REALLOC01: Signature = Signature::Realloc { old: 0, size: 1 };
const REALLOC12: Signature = Signature::Realloc { old: 1, size: 2 };
const REALLOC_PRODUCT: Signature = Signature::ReallocProduct { old: 0, count: 1, size: 2 };
const FREE: Signature = Signature::Free { block: 0 };
const FREE_AROUND: Signature = Signature::FreeAround { block: 0 };

/// All hooked functions, in the order of the help text and `doctor`.
pub const FUNCTIONS: &[Function] = &[
    required("malloc", SIZE0),
    row("calloc", PRODUCT01, Naming::Standard),
    row("realloc", REALLOC01, Naming::Standard),
    row("reallocarray", REALLOC_PRODUCT, Naming::Standard),
    required("free", FREE),
    row("posix_memalign", Signature::AllocOut { out: 0, size: 2 }, Naming::Standard),
    row("aligned_alloc", SIZE1, Naming::Standard),
    row("memalign", SIZE1, Naming::Standard),
    row("valloc", SIZE0, Naming::Standard),
    row("pvalloc", SIZE0, Naming::Standard),
    row("free_sized", FREE_AROUND, Naming::Standard),
    row("free_aligned_sized", FREE_AROUND, Naming::Standard),
    row("mallocx", SIZE0, Naming::Jemalloc),
    row("rallocx", REALLOC01, Naming::Jemalloc),
    row("xallocx", Signature::Resize { block: 0, size: 1, extra: 2 }, Naming::Jemalloc),
    row("dallocx", FREE, Naming::Jemalloc),
    row("sdallocx", FREE, Naming::Jemalloc),
    row("malloc_small", SIZE0, Naming::Mimalloc),
    row("zalloc", SIZE0, Naming::Mimalloc),
    row("zalloc_small", SIZE0, Naming::Mimalloc),
    row("mallocn", PRODUCT01, Naming::Mimalloc),
    row("reallocn", REALLOC_PRODUCT, Naming::Mimalloc),
    row("rezalloc", REALLOC01, Naming::Mimalloc),
    row("recalloc", REALLOC_PRODUCT, Naming::Mimalloc),
    row("expand", REALLOC01, Naming::Mimalloc),
    row("malloc_aligned", SIZE0, Naming::Mimalloc),
    row("zalloc_aligned", SIZE0, Naming::Mimalloc),
    row("calloc_aligned", PRODUCT01, Naming::Mimalloc),
    row("realloc_aligned", REALLOC01, Naming::Mimalloc),
    row("rezalloc_aligned", REALLOC01, Naming::Mimalloc),
    row("recalloc_aligned", REALLOC_PRODUCT, Naming::Mimalloc),
    row("heap_malloc", SIZE1, Naming::Mimalloc),
    row("heap_malloc_small", SIZE1, Naming::Mimalloc),
    row("heap_zalloc", SIZE1, Naming::Mimalloc),
    row("heap_calloc", PRODUCT12, Naming::Mimalloc),
    row("heap_mallocn", PRODUCT12, Naming::Mimalloc),
    row("heap_realloc", REALLOC12, Naming::Mimalloc),
    row("heap_rezalloc", REALLOC12, Naming::Mimalloc),
    row("heap_malloc_aligned", SIZE1, Naming::Mimalloc),
    row("heap_malloc_aligned_at", SIZE1, Naming::Mimalloc),
    row("heap_zalloc_aligned", SIZE1, Naming::Mimalloc),
    row("heap_zalloc_aligned_at", SIZE1, Naming::Mimalloc),
    row("heap_calloc_aligned", PRODUCT12, Naming::Mimalloc),
    row("heap_realloc_aligned", REALLOC12, Naming::Mimalloc),
    row("heap_realloc_aligned_at", REALLOC12, Naming::Mimalloc),
    row("heap_rezalloc_aligned", REALLOC12, Naming::Mimalloc),
    row("free_size", FREE_AROUND, Naming::Mimalloc),
    row("free_aligned", FREE_AROUND, Naming::Mimalloc),
    row("free_size_aligned", FREE_AROUND, Naming::Mimalloc),
    row("new_nothrow", SIZE0, Naming::Mimalloc),
    row("new_aligned_nothrow", SIZE0, Naming::Mimalloc),
    throwing("new", SIZE0, Naming::Mimalloc),
    throwing("new_n", PRODUCT01, Naming::Mimalloc),
    throwing("new_aligned", SIZE0, Naming::Mimalloc),
    throwing("_Znwm", SIZE0, Naming::Cpp),
    throwing("_Znwm12__hot_cold_t", SIZE0, Naming::Cpp),
    throwing("_ZnwmSt11align_val_t", SIZE0, Naming::Cpp),
    throwing("_ZnwmSt11align_val_t12__hot_cold_t", SIZE0, Naming::Cpp),
    row("_ZnwmRKSt9nothrow_t", SIZE0, Naming::Cpp),
    row("_ZnwmRKSt9nothrow_t12__hot_cold_t", SIZE0, Naming::Cpp),
    row("_ZnwmSt11align_val_tRKSt9nothrow_t", SIZE0, Naming::Cpp),
    row("_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t", SIZE0, Naming::Cpp),
    throwing("_Znam", SIZE0, Naming::Cpp),
    throwing("_Znam12__hot_cold_t", SIZE0, Naming::Cpp),
    throwing("_ZnamSt11align_val_t", SIZE0, Naming::Cpp),
    throwing("_ZnamSt11align_val_t12__hot_cold_t", SIZE0, Naming::Cpp),
    row("_ZnamRKSt9nothrow_t", SIZE0, Naming::Cpp),
    row("_ZnamRKSt9nothrow_t12__hot_cold_t", SIZE0, Naming::Cpp),
    row("_ZnamSt11align_val_tRKSt9nothrow_t", SIZE0, Naming::Cpp),
    row("_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t", SIZE0, Naming::Cpp),
    row("_ZdlPv", FREE_AROUND, Naming::Cpp),
    row("_ZdlPvm", FREE_AROUND, Naming::Cpp),
    row("_ZdlPvSt11align_val_t", FREE_AROUND, Naming::Cpp),
    row("_ZdlPvmSt11align_val_t", FREE_AROUND, Naming::Cpp),
    row("_ZdlPvRKSt9nothrow_t", FREE_AROUND, Naming::Cpp),
    row("_ZdlPvSt11align_val_tRKSt9nothrow_t", FREE_AROUND, Naming::Cpp),
    row("_ZdaPv", FREE_AROUND, Naming::Cpp),
    row("_ZdaPvm", FREE_AROUND, Naming::Cpp),
    row("_ZdaPvSt11align_val_t", FREE_AROUND, Naming::Cpp),
    row("_ZdaPvmSt11align_val_t", FREE_AROUND, Naming::Cpp),
    row("_ZdaPvRKSt9nothrow_t", FREE_AROUND, Naming::Cpp),
    row("_ZdaPvSt11align_val_tRKSt9nothrow_t", FREE_AROUND, Naming::Cpp),
    row("__rust_alloc", SIZE0, Naming::Rust),
    row("__rust_alloc_zeroed", SIZE0, Naming::Rust),
    row("__rust_realloc", Signature::Realloc { old: 0, size: 3 }, Naming::Rust),
    row("__rust_dealloc", FREE_AROUND, Naming::Rust),
];

/// Demangled names of C++ operators.
const CPP: &[(&str, &str)] = &[
    ("_Znwm", "operator new(size)"),
    ("_Znwm12__hot_cold_t", "operator new(size, hot_cold)"),
    ("_ZnwmSt11align_val_t", "operator new(size, align)"),
    ("_ZnwmSt11align_val_t12__hot_cold_t", "operator new(size, align, hot_cold)"),
    ("_ZnwmRKSt9nothrow_t", "operator new(size, nothrow)"),
    ("_ZnwmRKSt9nothrow_t12__hot_cold_t", "operator new(size, nothrow, hot_cold)"),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t", "operator new(size, align, nothrow)"),
    ("_ZnwmSt11align_val_tRKSt9nothrow_t12__hot_cold_t", "operator new(size, align, nothrow, hot_cold)"),
    ("_Znam", "operator new[](size)"),
    ("_Znam12__hot_cold_t", "operator new[](size, hot_cold)"),
    ("_ZnamSt11align_val_t", "operator new[](size, align)"),
    ("_ZnamSt11align_val_t12__hot_cold_t", "operator new[](size, align, hot_cold)"),
    ("_ZnamRKSt9nothrow_t", "operator new[](size, nothrow)"),
    ("_ZnamRKSt9nothrow_t12__hot_cold_t", "operator new[](size, nothrow, hot_cold)"),
    ("_ZnamSt11align_val_tRKSt9nothrow_t", "operator new[](size, align, nothrow)"),
    ("_ZnamSt11align_val_tRKSt9nothrow_t12__hot_cold_t", "operator new[](size, align, nothrow, hot_cold)"),
    ("_ZdlPv", "operator delete(block)"),
    ("_ZdlPvm", "operator delete(block, size)"),
    ("_ZdlPvSt11align_val_t", "operator delete(block, align)"),
    ("_ZdlPvmSt11align_val_t", "operator delete(block, size, align)"),
    ("_ZdlPvRKSt9nothrow_t", "operator delete(block, nothrow)"),
    ("_ZdlPvSt11align_val_tRKSt9nothrow_t", "operator delete(block, align, nothrow)"),
    ("_ZdaPv", "operator delete[](block)"),
    ("_ZdaPvm", "operator delete[](block, size)"),
    ("_ZdaPvSt11align_val_t", "operator delete[](block, align)"),
    ("_ZdaPvmSt11align_val_t", "operator delete[](block, size, align)"),
    ("_ZdaPvRKSt9nothrow_t", "operator delete[](block, nothrow)"),
    ("_ZdaPvSt11align_val_tRKSt9nothrow_t", "operator delete[](block, align, nothrow)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_one_row_and_operators_a_display_name() {
        for (place, function) in FUNCTIONS.iter().enumerate() {
            let same = |other: &&Function| other.name == function.name && other.naming == function.naming;
            assert_eq!(FUNCTIONS.iter().position(|other| same(&other)), Some(place), "{}", function.name);
            assert_eq!(
                function.display_name().starts_with("operator "),
                function.naming == Naming::Cpp,
                "{}",
                function.name
            );
        }
    }
}
