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
