//! Calling signatures of hooked functions, and the BPF programs for each of them.

use super::Argument;

/// Calling signature of a hooked function: the meaning of its arguments.
///
/// Each signature in the table of functions has its own entry program. General entry programs serve the other
/// signatures, of functions that users name. The return programs serve all signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signature {
    /// Returns a block of `size` bytes, or null.
    Alloc {
        /// Argument with the size in bytes.
        size: Argument,
    },
    /// Like [`Signature::Alloc`]. The function rounds the size up to whole pages, and may pass the rounded size to another
    /// function.
    AllocPages {
        /// Argument with the size in bytes.
        size: Argument,
    },
    /// Returns a block of `count * size` bytes, or null. If the product overflows, it returns null.
    AllocProduct {
        /// Argument with the number of elements.
        count: Argument,
        /// Argument with the size of an element in bytes.
        size: Argument,
    },
    /// Returns 0 and stores the block's address through a pointer, or returns an error number.
    AllocOut {
        /// Argument that points to the variable for the block's address.
        out: Argument,
        /// Argument with the size in bytes.
        size: Argument,
    },
    /// Frees the old block and returns a new one of `size` bytes, or returns null and keeps the old block.
    Realloc {
        /// Argument with the old block's address.
        old: Argument,
        /// Argument with the new size in bytes.
        size: Argument,
    },
    /// Like [`Signature::Realloc`], with `count * size` bytes.
    ReallocProduct {
        /// Argument with the old block's address.
        old: Argument,
        /// Argument with the number of elements.
        count: Argument,
        /// Argument with the size of an element in bytes.
        size: Argument,
    },
    /// Resizes a block in place and returns its new size. If the result is less than `size`, the block is unchanged;
    /// otherwise its size is the result, at most `size + extra`.
    Resize {
        /// Argument with the block's address.
        block: Argument,
        /// Argument with the new size in bytes.
        size: Argument,
        /// Argument with the number of optional bytes.
        extra: Argument,
    },
    /// Frees a block, or does nothing if it is null. Calls no other function that frees blocks.
    Free {
        /// Argument with the block's address.
        block: Argument,
    },
    /// Like [`Signature::Free`], but may call other functions that free blocks. The return of the function is probed,
    /// so that these calls count as nested.
    FreeAround {
        /// Argument with the block's address.
        block: Argument,
    },
    /// Calls functions that free blocks for a second time.
    RepeatFrees,
    /// An allocating function that has failed calls this function to get the new handler, or to throw an exception.
    AllocFailure,
}

/// Name of the BPF program that runs when a hooked function returns.
pub const RETURN_PROGRAM: &str = "call_return";

/// Name of the BPF program that runs at the return instruction of a hooked function, if the kernel must not replace the return
/// address.
pub const RETURN_SITE_PROGRAM: &str = "call_return_site";

/// Names of the BPF programs that count blocks, for runs without records.
pub mod counting {
    /// Program at the return of a function.
    pub const RETURN_PROGRAM: &str = "count_return";
    /// Program at the return instruction of a function, if its return address must not be replaced.
    pub const RETURN_SITE_PROGRAM: &str = "count_return_site";
    /// Program at the return of a function that calls no other hooked function. The size of the returned block is in
    /// front of the block.
    pub const SIZED_RETURN_PROGRAM: &str = "count_sized_return";
    /// Program at the entry of a function that frees the block in its first argument. The size of the block is in front
    /// of the block.
    pub const SIZED_FREE_PROGRAM: &str = "count_sized_free";
    /// Program at a later instruction of a function that frees the block in its first argument. At this instruction, a register
    /// holds the word in front of the block ([`SizeCookie`]).
    pub const LOADED_FREE_PROGRAM: &str = "count_loaded_free";

    /// BPF cookie that names the register with the word in front of a block. This word holds the size of the block.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct SizeCookie(pub u64);

    impl SizeCookie {
        /// Returns the cookie of an instruction. `register` is a DWARF number. `lowered` is the number of bytes from the stack
        /// pointer up to its value at the entry of the function.
        #[must_use]
        pub const fn new(register: u8, lowered: u8) -> Self {
            Self(register as u64 | (lowered as u64) << 8)
        }

        /// Returns the DWARF number of the register.
        #[inline(always)]
        #[must_use]
        pub const fn register(self) -> usize {
            (self.0 & 0xff) as usize
        }

        /// Returns the number of bytes from the stack pointer up to its value at the entry of the function.
        #[inline(always)]
        #[must_use]
        pub const fn lowered(self) -> u64 {
            self.0 >> 8 & 0xff
        }
    }
}

/// BPF program for the entry of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryProgram {
    /// Name in the BPF object.
    pub name: &'static str,
    /// BPF cookie with the indices of the arguments, if the program serves more than one signature.
    pub cookie: Option<Cookie>,
}

/// BPF cookie of a general entry program. Its lowest 12 bits are three places of four bits. Each place has the index of
/// an argument that the program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

/// Value of a place without an argument.
pub const COOKIE_NONE: u64 = 0xf;

impl Cookie {
    /// Lowest bit of the id of the function's allocator. The id is 0 if records do not name allocators.
    pub const ALLOCATOR_SHIFT: u32 = 32;

    /// Lowest bit of the index of the function in the table of functions. The bits are 0 if calls are not timed.
    const FUNCTION_SHIFT: u32 = 16;

    /// Bit that is set if the function's allocator stores the size of each block in front of this block, as glibc does.
    pub const HAS_SIZES: u64 = 1 << 63;

    /// Returns the cookie with the bit [`Self::HAS_SIZES`].
    #[must_use]
    pub const fn with_sizes(self) -> Self {
        Self(self.0 | Self::HAS_SIZES)
    }

    /// Returns the cookie with the id of an allocator.
    #[must_use]
    pub const fn with_allocator(self, allocator: u16) -> Self {
        Self(self.0 | (allocator as u64) << Self::ALLOCATOR_SHIFT)
    }

    /// Returns the cookie with the index of the function.
    #[must_use]
    pub const fn with_function(self, function: u16) -> Self {
        Self(self.0 | (function as u64) << Self::FUNCTION_SHIFT)
    }

    /// Returns the index of the function.
    #[inline(always)]
    #[must_use]
    pub const fn function(self) -> u16 {
        (self.0 >> Self::FUNCTION_SHIFT) as u16
    }

    const fn new(first: Option<Argument>, second: Option<Argument>, third: Option<Argument>) -> Self {
        const fn bits(argument: Option<Argument>) -> u64 {
            match argument {
                Some(argument) => argument as u64 & 0xf,
                None => COOKIE_NONE,
            }
        }
        Self(bits(first) | bits(second) << 4 | bits(third) << 8)
    }

    /// Returns the index of the argument in this place, or [`COOKIE_NONE`].
    #[inline(always)]
    #[must_use]
    pub const fn argument(self, place: u32) -> u64 {
        self.0 >> (4 * place) & 0xf
    }
}

impl Signature {
    /// Returns true if the function returns a block and frees none.
    #[must_use]
    pub const fn is_alloc(&self) -> bool {
        matches!(self, Self::Alloc { .. } | Self::AllocPages { .. } | Self::AllocProduct { .. } | Self::AllocOut { .. })
    }

    /// Returns the BPF program for the entry of a function with this signature.
    ///
    /// Signatures of [`super::FUNCTIONS`] have their own programs, which read no argument indices from a cookie. A test
    /// checks this.
    #[must_use]
    pub const fn entry_program(self) -> EntryProgram {
        let (name, cookie) = match self {
            Self::Alloc { size: 0 } => ("alloc_size0", None),
            Self::Alloc { size: 1 } => ("alloc_size1", None),
            Self::AllocPages { size: 0 } => ("alloc_pages0", None),
            Self::AllocProduct { count: 0, size: 1 } => ("alloc_product01", None),
            Self::AllocProduct { count: 1, size: 2 } => ("alloc_product12", None),
            Self::AllocOut { out: 0, size: 2 } => ("alloc_out0_size2", None),
            Self::Realloc { old: 0, size: 1 } => ("realloc_old0_size1", None),
            Self::Realloc { old: 1, size: 2 } => ("realloc_old1_size2", None),
            Self::Realloc { old: 0, size: 3 } => ("realloc_old0_size3", None),
            Self::ReallocProduct { old: 0, count: 1, size: 2 } => ("realloc_old0_product12", None),
            Self::Resize { block: 0, size: 1, extra: 2 } => ("resize_block0_size1_extra2", None),
            Self::Free { block: 0 } => ("free_block0", None),
            Self::FreeAround { block: 0 } => ("free_around_block0", None),
            Self::RepeatFrees => ("repeat_frees", None),
            Self::AllocFailure => ("alloc_failure", None),
            Self::Alloc { .. } | Self::AllocPages { .. } | Self::AllocProduct { .. } | Self::AllocOut { .. } => {
                ("alloc_any", Some(self.cookie()))
            }
            Self::Realloc { .. } | Self::ReallocProduct { .. } => ("realloc_any", Some(self.cookie())),
            Self::Resize { .. } => ("resize_any", Some(self.cookie())),
            Self::Free { .. } => ("free_any", Some(self.cookie())),
            Self::FreeAround { .. } => ("free_around_any", Some(self.cookie())),
        };
        EntryProgram { name, cookie }
    }

    /// Returns the cookie with the indices of the arguments, for programs that serve several signatures.
    const fn cookie(self) -> Cookie {
        match self {
            Self::Alloc { size } | Self::AllocPages { size } => Cookie::new(Some(size), None, None),
            Self::AllocProduct { count, size } => Cookie::new(Some(size), Some(count), None),
            Self::AllocOut { out, size } => Cookie::new(Some(size), None, Some(out)),
            Self::Realloc { old, size } => Cookie::new(Some(size), None, Some(old)),
            Self::ReallocProduct { old, count, size } => Cookie::new(Some(size), Some(count), Some(old)),
            Self::Resize { block, size, extra } => Cookie::new(Some(size), Some(extra), Some(block)),
            Self::Free { block } | Self::FreeAround { block } => Cookie::new(Some(block), None, None),
            Self::RepeatFrees | Self::AllocFailure => Cookie::new(None, None, None),
        }
    }

    /// Returns the BPF program, with its cookie, that counts blocks at the entry of a function with this signature.
    #[must_use]
    pub const fn counting_program(self) -> EntryProgram {
        let name = match self {
            Self::Alloc { .. } | Self::AllocPages { .. } | Self::AllocProduct { .. } | Self::AllocOut { .. } => {
                "count_alloc"
            }
            Self::Realloc { .. } | Self::ReallocProduct { .. } => "count_realloc",
            Self::Resize { .. } => "count_resize",
            Self::Free { .. } => "count_free",
            Self::FreeAround { .. } => "count_free_around",
            Self::RepeatFrees => "count_repeat_frees",
            Self::AllocFailure => "count_alloc_failure",
        };
        EntryProgram { name, cookie: Some(self.cookie()) }
    }

    /// Returns true if the function's return must be probed.
    #[must_use]
    pub const fn needs_return(self) -> bool {
        !matches!(self, Self::Free { .. } | Self::AllocFailure)
    }

    /// Returns true if the function frees a block and returns none.
    #[must_use]
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Free { .. } | Self::FreeAround { .. })
    }

    /// Returns the common signature of two functions at the same address; `None` if the signatures contradict each
    /// other. [`Self::Free`] takes precedence over [`Self::FreeAround`], and [`Self::Alloc`] over [`Self::AllocPages`].
    #[must_use]
    pub fn merged(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Free { block }, Self::FreeAround { block: same })
            | (Self::FreeAround { block }, Self::Free { block: same })
                if block == same =>
            {
                Some(Self::Free { block })
            }
            (Self::Alloc { size }, Self::AllocPages { size: same })
            | (Self::AllocPages { size }, Self::Alloc { size: same })
                if size == same =>
            {
                Some(Self::Alloc { size })
            }
            _ => (self == other).then_some(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::FUNCTIONS;
    use super::*;

    #[test]
    fn programs_of_the_function_table_need_no_cookie() {
        for function in FUNCTIONS {
            assert_eq!(function.signature.entry_program().cookie, None, "{}", function.name);
        }
    }

    #[test]
    fn cookies_encode_the_numbers_of_arguments() {
        let program = Signature::AllocProduct { count: 4, size: 2 }.entry_program();
        let cookie = program.cookie.expect("a general program has a cookie");
        assert_eq!([0, 1, 2].map(|place| cookie.argument(place)), [2, 4, COOKIE_NONE]);
        assert_eq!(Signature::Free { block: 3 }.entry_program().cookie, Some(Cookie(0xff3)));
    }

    #[test]
    fn programs_that_count_serve_all_signatures_of_their_kind() {
        let resize = Signature::Resize { block: 0, size: 1, extra: 2 }.counting_program();
        let cookie = resize.cookie.expect("programs that count have a cookie");
        assert_eq!((resize.name, [0, 1, 2].map(|place| cookie.argument(place))), ("count_resize", [1, 2, 0]));
    }

    #[test]
    fn free_and_free_around_at_one_address_merge_to_free() {
        let (free, around) = (Signature::Free { block: 0 }, Signature::FreeAround { block: 0 });
        assert_eq!(
            (free.merged(around), around.merged(free), around.merged(around)),
            (Some(free), Some(free), Some(around))
        );
        assert_eq!(free.merged(Signature::FreeAround { block: 1 }), None);
        assert_eq!(Signature::Alloc { size: 0 }.merged(Signature::Alloc { size: 1 }), None);
    }
}
