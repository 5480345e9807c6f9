//! Events with a number or a text.

use core::ffi::CStr;

use crate::probe::{probe, semaphore};

semaphore!(EVENT_NUMBER);
semaphore!(EVENT_TEXT);

/// Returns true while a tracer reads events with numbers.
#[inline(always)]
#[must_use]
pub fn event_number_is_enabled() -> bool {
    EVENT_NUMBER.is_raised()
}

/// Returns true while a tracer reads events with texts.
#[inline(always)]
#[must_use]
pub fn event_text_is_enabled() -> bool {
    EVENT_TEXT.is_raised()
}

/// Sends an event with a number. The program chooses the unit.
#[inline(always)]
pub fn event_number(name: &CStr, value: i64) {
    probe!(EVENT_NUMBER, "event_number", name.as_ptr(), signed value);
}

/// Sends an event with a text.
#[inline(always)]
pub fn event_text(name: &CStr, text: &CStr) {
    probe!(EVENT_TEXT, "event_text", name.as_ptr(), text.as_ptr());
}

/// Guard that sends an event with a number when it is dropped.
#[derive(Debug)]
#[must_use = "the event is sent when the guard is dropped"]
pub struct NumberAtEnd<'name> {
    name: &'name CStr,
    /// Number that the event will have, in a unit of the program's choice.
    pub value: i64,
}

impl Drop for NumberAtEnd<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        event_number(self.name, self.value);
    }
}

/// Returns a guard that sends an event with a number at the end of its scope.
#[inline(always)]
pub fn number_at_end(name: &CStr, value: i64) -> NumberAtEnd<'_> {
    NumberAtEnd { name, value }
}

/// Guard that sends an event with a text when it is dropped.
#[derive(Debug)]
#[must_use = "the event is sent when the guard is dropped"]
pub struct TextAtEnd<'name> {
    name: &'name CStr,
    /// Text that the event will have.
    pub text: &'name CStr,
}

impl Drop for TextAtEnd<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        event_text(self.name, self.text);
    }
}

/// Returns a guard that sends an event with a text at the end of its scope.
#[inline(always)]
pub fn text_at_end<'name>(name: &'name CStr, text: &'name CStr) -> TextAtEnd<'name> {
    TextAtEnd { name, text }
}
