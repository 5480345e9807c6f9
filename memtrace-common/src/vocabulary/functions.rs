//! The table of hooked functions.

use super::Signature;
use super::allocators::{ALLOCATORS, JEMALLOC, KnownAllocator, MIMALLOC};

/// Rule that finds a function's symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Naming {
    /// A function name of the C library. Other allocators define the same name, some with a prefix.
    Standard,
    /// A name of this allocator, with the same prefix as its standard names.
    Own(&'static KnownAllocator),
    /// A mangled C++ operator.
    Cpp,
    /// A function that rustc calls for the global allocator.
    Rust,
    /// A name that the user has given.
    Hook,
    /// No symbol name in the table. Other rules find the function: by its code in a stripped library, or by an import.
    Code,
}

impl Naming {
    /// Returns the known prefixes of the functions. The empty prefix comes first, if names without a prefix are
    /// possible.
    pub fn prefixes(self) -> impl Iterator<Item = &'static str> {
        let allocators = match self {
            Self::Standard => ALLOCATORS,
            Self::Own(allocator) => core::slice::from_ref(allocator),
            Self::Cpp | Self::Rust | Self::Hook | Self::Code => &[],
        };
        let unprefixed = !matches!(self, Self::Code) && !matches!(self, Self::Own(allocator) if !allocator.any_prefix);
        unprefixed.then_some("").into_iter().chain(allocators.iter().flat_map(|allocator| allocator.prefixes).copied())
    }

    /// Returns true for functions of C allocators. An object can define such a function several times, with different prefixes.
    /// A prefix may be empty.
    #[must_use]
    pub const fn has_prefix(self) -> bool {
        matches!(self, Self::Standard | Self::Own(_))
    }

    /// Returns true if the functions are also looked up with the prefixes that the user adds.
    #[must_use]
    pub const fn accepts_user_prefix(self) -> bool {
        match self {
            Self::Standard => true,
            Self::Own(allocator) => allocator.any_prefix,
            Self::Cpp | Self::Rust | Self::Hook | Self::Code => false,
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
    /// Rule that finds the symbol.
    pub naming: Naming,
    /// True if the function may throw an exception. A uretprobe would keep the exception from reaching its handler.
    pub throws: bool,
}

impl Function {
    /// Returns true if the function calls no other hooked function in any C library. For glibc, see `__libc_malloc` and
    /// `__libc_calloc` in malloc/malloc.c.
    #[must_use]
    pub fn is_leaf(&self) -> bool {
        matches!(self.naming, Naming::Standard) && matches!(self.name, "malloc" | "calloc")
    }

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

const OF_JEMALLOC: Naming = Naming::Own(&JEMALLOC);
const OF_MIMALLOC: Naming = Naming::Own(&MIMALLOC);

const SIZE0: Signature = Signature::Alloc { size: 0 };
const SIZE1: Signature = Signature::Alloc { size: 1 };
const PRODUCT01: Signature = Signature::AllocProduct { count: 0, size: 1 };
const PRODUCT12: Signature = Signature::AllocProduct { count: 1, size: 2 };
const REALLOC01: Signature = Signature::Realloc { old: 0, size: 1 };
const REALLOC12: Signature = Signature::Realloc { old: 1, size: 2 };
const REALLOC_PRODUCT: Signature = Signature::ReallocProduct { old: 0, count: 1, size: 2 };
const FREE: Signature = Signature::Free { block: 0 };
const FREE_AROUND: Signature = Signature::FreeAround { block: 0 };

/// A function of the C library that frees blocks for a second time. It may have no symbol.
pub const REPEATS_FREES: Function = row("repeated free", Signature::RepeatFrees, Naming::Code);

/// A function of the C++ runtime that an allocating function calls after it has failed. The probe may be at a PLT stub
/// for the function.
pub const ALLOC_FAILURE: Function = row("failed allocation", Signature::AllocFailure, Naming::Code);

/// All hooked functions, ordered as in the help text and `doctor`.
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
    row("pvalloc", Signature::AllocPages { size: 0 }, Naming::Standard),
    row("free_sized", FREE_AROUND, Naming::Standard),
    row("free_aligned_sized", FREE_AROUND, Naming::Standard),
    row("mallocx", SIZE0, OF_JEMALLOC),
    row("rallocx", REALLOC01, OF_JEMALLOC),
    row("xallocx", Signature::Resize { block: 0, size: 1, extra: 2 }, OF_JEMALLOC),
    row("dallocx", FREE, OF_JEMALLOC),
    row("sdallocx", FREE, OF_JEMALLOC),
    row("malloc_small", SIZE0, OF_MIMALLOC),
    row("zalloc", SIZE0, OF_MIMALLOC),
    row("zalloc_small", SIZE0, OF_MIMALLOC),
    row("mallocn", PRODUCT01, OF_MIMALLOC),
    row("reallocn", REALLOC_PRODUCT, OF_MIMALLOC),
    row("rezalloc", REALLOC01, OF_MIMALLOC),
    row("recalloc", REALLOC_PRODUCT, OF_MIMALLOC),
    row("expand", REALLOC01, OF_MIMALLOC),
    row("malloc_aligned", SIZE0, OF_MIMALLOC),
    row("zalloc_aligned", SIZE0, OF_MIMALLOC),
    row("calloc_aligned", PRODUCT01, OF_MIMALLOC),
    row("realloc_aligned", REALLOC01, OF_MIMALLOC),
    row("rezalloc_aligned", REALLOC01, OF_MIMALLOC),
    row("recalloc_aligned", REALLOC_PRODUCT, OF_MIMALLOC),
    row("heap_malloc", SIZE1, OF_MIMALLOC),
    row("heap_malloc_small", SIZE1, OF_MIMALLOC),
    row("heap_zalloc", SIZE1, OF_MIMALLOC),
    row("heap_calloc", PRODUCT12, OF_MIMALLOC),
    row("heap_mallocn", PRODUCT12, OF_MIMALLOC),
    row("heap_realloc", REALLOC12, OF_MIMALLOC),
    row("heap_rezalloc", REALLOC12, OF_MIMALLOC),
    row("heap_malloc_aligned", SIZE1, OF_MIMALLOC),
    row("heap_malloc_aligned_at", SIZE1, OF_MIMALLOC),
    row("heap_zalloc_aligned", SIZE1, OF_MIMALLOC),
    row("heap_zalloc_aligned_at", SIZE1, OF_MIMALLOC),
    row("heap_calloc_aligned", PRODUCT12, OF_MIMALLOC),
    row("heap_realloc_aligned", REALLOC12, OF_MIMALLOC),
    row("heap_realloc_aligned_at", REALLOC12, OF_MIMALLOC),
    row("heap_rezalloc_aligned", REALLOC12, OF_MIMALLOC),
    row("free_size", FREE_AROUND, OF_MIMALLOC),
    row("free_aligned", FREE_AROUND, OF_MIMALLOC),
    row("free_size_aligned", FREE_AROUND, OF_MIMALLOC),
    row("new_nothrow", SIZE0, OF_MIMALLOC),
    row("new_aligned_nothrow", SIZE0, OF_MIMALLOC),
    throwing("new", SIZE0, OF_MIMALLOC),
    throwing("new_n", PRODUCT01, OF_MIMALLOC),
    throwing("new_aligned", SIZE0, OF_MIMALLOC),
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
    REPEATS_FREES,
    ALLOC_FAILURE,
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
