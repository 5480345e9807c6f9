//! Symbolic values of registers and stack slots.

/// Base of a symbolic value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    /// No origin: the value is a number, such as an address in the object.
    Number,
    /// First argument of the function.
    Argument,
    /// Stack pointer at the entry of the function.
    Stack,
    /// Thread pointer.
    ThreadPointer,
    /// Content of the GOT slot at this address: a distance from the thread pointer.
    Slot(u64),
    /// Thread pointer plus the content of the GOT slot at this address.
    ThreadSlot(u64),
}

/// A symbolic value: its origin plus an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Value {
    pub(super) origin: Origin,
    pub(super) offset: i64,
}

impl Value {
    pub(super) const fn new(origin: Origin, offset: i64) -> Self {
        Self { origin, offset }
    }

    pub(super) const fn number(number: i64) -> Self {
        Self::new(Origin::Number, number)
    }

    /// Returns the sum; `None` if it has no symbolic form.
    pub(super) fn plus(self, other: Self) -> Option<Self> {
        let origin = match (self.origin, other.origin) {
            (origin, Origin::Number) | (Origin::Number, origin) => origin,
            (Origin::ThreadPointer, Origin::Slot(slot)) | (Origin::Slot(slot), Origin::ThreadPointer) => {
                Origin::ThreadSlot(slot)
            }
            _ => return None,
        };
        Some(Self::new(origin, self.offset.wrapping_add(other.offset)))
    }

    pub(super) const fn plus_number(self, number: i64) -> Self {
        Self::new(self.origin, self.offset.wrapping_add(number))
    }

    /// Returns true for the address of a thread-local variable.
    pub(super) const fn is_thread_local(self) -> bool {
        matches!(self.origin, Origin::ThreadPointer | Origin::ThreadSlot(_))
    }
}
