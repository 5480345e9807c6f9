//! Tags: names of the parts of a program to which blocks belong.

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

/// Gives blocks that the thread allocates from now on the tag `name`, until the matching [`tag_end`].
#[inline(always)]
pub fn tag_begin(name: &CStr) {
    probe!(TAG_BEGIN, "tag_begin", name.as_ptr());
}

/// Gives blocks a number as their tag, as [`tag_begin`] gives them a name.
#[inline(always)]
pub fn tag_begin_id(number: u64) {
    probe!(TAG_BEGIN_ID, "tag_begin_id", number);
}

/// Restores the tag before the last [`tag_begin`] or [`tag_begin_id`] of the thread.
#[inline(always)]
pub fn tag_end() {
    probe!(TAG_END, "tag_end");
}

/// Tag until the guard is dropped, which the thread does that made it. Guards are dropped in reverse order.
#[derive(Debug)]
#[must_use = "the tag ends when the guard is dropped"]
pub struct Tag(PhantomData<*const ()>);

impl Drop for Tag {
    #[inline(always)]
    fn drop(&mut self) {
        tag_end();
    }
}

/// Begins the tag `name`.
#[inline(always)]
pub fn tag(name: &CStr) -> Tag {
    tag_begin(name);
    Tag(PhantomData)
}

/// Begins a tag with a number.
#[inline(always)]
pub fn tag_number(number: u64) -> Tag {
    tag_begin_id(number);
    Tag(PhantomData)
}

/// Tag with a computed name, until the guard is dropped. It has not begun if no tracer read it then.
#[derive(Debug)]
#[must_use = "the tag ends when the guard is dropped"]
pub struct ComputedTag(Option<Tag>);

impl ComputedTag {
    /// Returns true if a tracer read the name.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.0.is_some()
    }
}

/// Begins a tag whose name is formatted only while a tracer reads it. The name is cut after 63 bytes; no memory is
/// allocated.
#[inline(always)]
pub fn computed_tag(name: fmt::Arguments<'_>) -> ComputedTag {
    ComputedTag(if tag_is_enabled() { Some(tag(Label::new(name).text())) } else { None })
}

/// Moves a live block to the current thread and tag: it counts as freed where it was, and as allocated here.
///
/// `block` is the address that the allocator returned. This is for a consumer that takes over what another thread has
/// allocated.
#[inline(always)]
pub fn claim<T: ?Sized>(block: *const T) {
    probe!(CLAIM, "claim", block.cast::<()>());
}
