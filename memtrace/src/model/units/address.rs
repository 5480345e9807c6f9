//! Address spaces, each a type of its own so that they cannot be mixed up.

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
    /// An address in a process' memory.
    AbsAddr
}
address_space! {
    /// A byte's offset in an object's file.
    FileOffset
}
address_space! {
    /// An address as an object's own headers and symbols count it, before it is loaded anywhere.
    VirtOffset
}
