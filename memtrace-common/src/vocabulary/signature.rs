//! How hooked functions are called, and which programs serve them.

use super::Argument;

/// How a hooked function is called: which argument says what.
///
/// One BPF entry program serves each signature that has a function in the table, general ones serve those that users name,
/// and one return program serves them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signature {
    /// Returns a block of `size` bytes, or null.
    Alloc {
        /// The argument that holds the size in bytes.
        size: Argument,
    },
    /// Returns a block of `count * size` bytes, or null; null too where the product overflows.
    AllocProduct {
        /// The argument that holds the number of elements.
        count: Argument,
        /// The argument that holds the bytes of one element.
        size: Argument,
    },
    /// Returns 0 and stores the block's address through a pointer, or returns an error number and stores nothing.
    AllocOut {
        /// The argument that points to where the address is stored.
        out: Argument,
        /// The argument that holds the size in bytes.
        size: Argument,
    },
    /// Gives up the old block and returns a new one of `size` bytes, or null and the old block stays.
    Realloc {
        /// The argument that holds the old block's address.
        old: Argument,
        /// The argument that holds the new size in bytes.
        size: Argument,
    },
    /// As [`Signature::Realloc`], of `count * size` bytes.
    ReallocProduct {
        /// The argument that holds the old block's address.
        old: Argument,
        /// The argument that holds the number of elements.
        count: Argument,
        /// The argument that holds the bytes of one element.
        size: Argument,
    },
    /// Changes a block's size where it lies, and returns the bytes that it has then. Where that is less than `size`, the
    /// block has stayed as it was; else it now counts as many bytes as were given of `size + extra`.
    Resize {
        /// The argument that holds the block's address.
        block: Argument,
        /// The argument that holds the new size in bytes.
        size: Argument,
        /// The argument that holds how many bytes more are welcome.
        extra: Argument,
    },
    /// Gives up a block; null is allowed and does nothing. It calls no other function that does.
    Free {
        /// The argument that holds the block's address.
        block: Argument,
    },
    /// As [`Signature::Free`], but it may call others that give up blocks. Its return is followed, so that those are known to
    /// be inside of it.
    FreeAround {
        /// The argument that holds the block's address.
        block: Argument,
    },
}

/// The BPF program, by its name in the object, that runs when a hooked function returns.
pub const RETURN_PROGRAM: &str = "call_return";

/// The BPF program, by its name in the object, that runs at the return instruction of a hooked function whose return
/// address must stay as it is.
pub const RETURN_SITE_PROGRAM: &str = "call_return_site";

/// A BPF program for the entry of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EntryProgram {
    /// Its name in the object.
    pub name: &'static str,
    /// What it is told of the function, where it serves more than one signature; that takes Linux 5.15.
    pub cookie: Option<Cookie>,
}

/// Which arguments a general program reads: four bits for each of first, second and third, as the program counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

/// In place of an argument: there is none.
pub const COOKIE_NONE: u64 = 0xf;

impl Cookie {
    /// Above so many bits is the number of the allocator whose function it is; 0 where nobody asks.
    pub const ALLOCATOR_SHIFT: u32 = 32;

    /// The same of a function of allocator number `allocator`.
    #[must_use]
    pub const fn with_allocator(self, allocator: u16) -> Self {
        Self(self.0 | (allocator as u64) << Self::ALLOCATOR_SHIFT)
    }

    const fn of(first: Option<Argument>, second: Option<Argument>, third: Option<Argument>) -> Self {
        const fn bits(argument: Option<Argument>) -> u64 {
            match argument {
                Some(argument) => argument as u64 & 0xf,
                None => COOKIE_NONE,
            }
        }
        Self(bits(first) | bits(second) << 4 | bits(third) << 8)
    }

    /// The number of the argument in this place, or [`COOKIE_NONE`].
    #[inline(always)]
    #[must_use]
    pub const fn argument(self, place: u32) -> u64 {
        self.0 >> (4 * place) & 0xf
    }
}

impl Signature {
    /// Whether such a function hands out a block, and takes none for it.
    #[must_use]
    pub const fn is_alloc(&self) -> bool {
        matches!(self, Self::Alloc { .. } | Self::AllocProduct { .. } | Self::AllocOut { .. })
    }

    /// The BPF program that runs when a function of this signature is entered.
    ///
    /// A signature of [`super::FUNCTIONS`] has one of its own, so that they work on every kernel; a test holds that.
    #[must_use]
    pub const fn entry_program(self) -> EntryProgram {
        let (name, cookie) = match self {
            Self::Alloc { size: 0 } => ("alloc_size0", None),
            Self::Alloc { size: 1 } => ("alloc_size1", None),
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
            Self::Alloc { size } => ("alloc_any", Some(Cookie::of(Some(size), None, None))),
            Self::AllocProduct { count, size } => ("alloc_any", Some(Cookie::of(Some(size), Some(count), None))),
            Self::AllocOut { out, size } => ("alloc_any", Some(Cookie::of(Some(size), None, Some(out)))),
            Self::Realloc { old, size } => ("realloc_any", Some(Cookie::of(Some(size), None, Some(old)))),
            Self::ReallocProduct { old, count, size } => {
                ("realloc_any", Some(Cookie::of(Some(size), Some(count), Some(old))))
            }
            Self::Resize { block, size, extra } => {
                ("resize_any", Some(Cookie::of(Some(size), Some(extra), Some(block))))
            }
            Self::Free { block } => ("free_any", Some(Cookie::of(Some(block), None, None))),
            Self::FreeAround { block } => ("free_around_any", Some(Cookie::of(Some(block), None, None))),
        };
        EntryProgram { name, cookie }
    }

    /// Whether the function's return matters, so that it must be probed.
    #[must_use]
    pub const fn needs_return(self) -> bool {
        !matches!(self, Self::Free { .. })
    }

    /// Whether the function gives up a block and hands out none.
    #[must_use]
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Free { .. } | Self::FreeAround { .. })
    }

    /// The signature by which two functions at one address can be seen, where they are called alike.
    #[must_use]
    pub fn merged(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Free { block }, Self::FreeAround { block: same })
            | (Self::FreeAround { block }, Self::Free { block: same })
                if block == same =>
            {
                Some(Self::Free { block })
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
    fn every_function_has_a_program_that_needs_no_cookie() {
        for function in FUNCTIONS {
            assert_eq!(function.signature.entry_program().cookie, None, "{}", function.name);
        }
    }

    #[test]
    fn a_cookie_says_which_arguments_are_read() {
        let program = Signature::AllocProduct { count: 4, size: 2 }.entry_program();
        let cookie = program.cookie.expect("no program of its own");
        assert_eq!([0, 1, 2].map(|place| cookie.argument(place)), [2, 4, COOKIE_NONE]);
        assert_eq!(Signature::Free { block: 3 }.entry_program().cookie, Some(Cookie(0xff3)));
    }

    #[test]
    fn a_free_that_is_also_called_otherwise_is_seen_as_a_free() {
        let (free, around) = (Signature::Free { block: 0 }, Signature::FreeAround { block: 0 });
        assert_eq!(
            (free.merged(around), around.merged(free), around.merged(around)),
            (Some(free), Some(free), Some(around))
        );
        assert_eq!(free.merged(Signature::FreeAround { block: 1 }), None);
        assert_eq!(Signature::Alloc { size: 0 }.merged(Signature::Alloc { size: 1 }), None);
    }
}
