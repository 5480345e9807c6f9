//! Types for addresses. Each address space has its own type, so that addresses cannot be mixed up.

use std::fmt;

macro_rules! address_space {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(out, "{:#x}", self.0)
            }
        }
    };
}

address_space! {
    /// Address in the memory of a process.
    AbsAddr
}
address_space! {
    /// Offset of a byte in an object's file.
    FileOffset
}
address_space! {
    /// Virtual address in an object, as in its program headers and symbols.
    VirtOffset
}
