//! Effects of functions on tags.

/// Effect of a function on the current tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum TagAction {
    /// Replaces the tag of the thread.
    Set = 0,
    /// Sets a tag until the matching [`TagAction::Leave`].
    Enter = 1,
    /// Restores the tag before the last [`TagAction::Enter`].
    Leave = 2,
    /// Sets the tag of the process. It applies to threads without a tag.
    SetProcess = 3,
    /// Sets the tag of the block that the call allocates.
    SetCall = 4,
    /// Moves a block to the current thread and tag.
    Claim = 5,
    /// Sets the tag of a block in the current call of a wrapper: of the last block if it has no final tag yet, else of
    /// the next block.
    SetLast = 6,
    /// Begins a call of a wrapper: a function that allocates a block and asks for the tag of the block.
    EnterWrapper = 7,
    /// Ends a call of a wrapper.
    LeaveWrapper = 8,
}

impl TagAction {
    /// Returns true if the action sets a new tag.
    #[inline(always)]
    #[must_use]
    pub const fn has_tag(self) -> bool {
        matches!(self, Self::Set | Self::Enter | Self::SetProcess | Self::SetCall | Self::SetLast)
    }
}

/// Value of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TagValue {
    /// A number of 64 bits, such as the address of a handle.
    Word,
    /// A number of 32 bits. The upper half of the register is undefined.
    Half,
    /// The address of a C string.
    Name,
}
