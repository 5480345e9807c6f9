//! Tags: names for blocks, such as the name of the part of a program that allocates them.

use core::ffi::CStr;
use core::fmt;
use core::marker::PhantomData;

use crate::label::Label;
use crate::probe::{probe, semaphore};

semaphore!(TAG_BEGIN);
semaphore!(TAG_BEGIN_ID);
semaphore!(TAG_END);
semaphore!(CLAIM);

/// Returns true while a tracer reads the names of tags.
#[inline(always)]
#[must_use]
pub fn tag_is_enabled() -> bool {
    TAG_BEGIN.is_raised()
}

/// Begins the tag `name`: until the matching [`tag_end`], the blocks that the thread allocates have this tag.
#[inline(always)]
pub fn tag_begin(name: &CStr) {
    probe!(TAG_BEGIN, "tag_begin", name.as_ptr());
}

/// Begins a tag that is a number, as [`tag_begin`] does for a name.
#[inline(always)]
pub fn tag_begin_id(number: u64) {
    probe!(TAG_BEGIN_ID, "tag_begin_id", number);
}

/// Ends the tag that the thread has begun last, and restores the tag before it.
#[inline(always)]
pub fn tag_end() {
    probe!(TAG_END, "tag_end");
}

/// Guard of a tag. The thread that created the guard drops it, in reverse order of creation.
#[derive(Debug)]
#[must_use = "the tag ends when the guard is dropped"]
pub struct Tag(PhantomData<*const ()>);

impl Drop for Tag {
    #[inline(always)]
    fn drop(&mut self) {
        tag_end();
    }
}

/// Begins the tag `name`, which ends when the guard is dropped.
#[inline(always)]
pub fn tag(name: &CStr) -> Tag {
    tag_begin(name);
    Tag(PhantomData)
}

/// Begins a tag that is a number, which ends when the guard is dropped.
#[inline(always)]
pub fn tag_number(number: u64) -> Tag {
    tag_begin_id(number);
    Tag(PhantomData)
}

/// Guard of a tag with a computed name. If no tracer was attached at its creation, the tag has not begun.
#[derive(Debug)]
#[must_use = "the tag ends when the guard is dropped"]
pub struct ComputedTag(Option<Tag>);

impl ComputedTag {
    /// Returns true if a tracer was attached when the guard was created.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.0.is_some()
    }
}

/// Begins a tag with a computed name. The name is formatted only while a tracer is attached, without an allocation, and
/// cut after 63 bytes.
#[inline(always)]
pub fn computed_tag(name: fmt::Arguments<'_>) -> ComputedTag {
    ComputedTag(if tag_is_enabled() { Some(tag(Label::new(name).text())) } else { None })
}

/// Moves a live block to the current thread and tag: the block counts as freed by its previous thread and tag, and as
/// allocated by the current ones.
///
/// `block` is the address that the allocator returned. A thread calls this for a block that another thread has
/// allocated and handed over.
#[inline(always)]
pub fn claim<T: ?Sized>(block: *const T) {
    probe!(CLAIM, "claim", block.cast::<()>());
}
