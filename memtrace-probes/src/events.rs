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

/// Sends an event with a number, in a unit of the program's choice.
#[inline(always)]
pub fn event_number(name: &CStr, value: i64) {
    probe!(EVENT_NUMBER, "event_number", name.as_ptr(), signed value);
}

/// Sends an event with a text.
#[inline(always)]
pub fn event_text(name: &CStr, text: &CStr) {
    probe!(EVENT_TEXT, "event_text", name.as_ptr(), text.as_ptr());
}

/// Event with a number, which is sent when this is dropped.
#[derive(Debug)]
#[must_use = "the event is sent when the guard is dropped"]
pub struct NumberAtEnd<'name> {
    name: &'name CStr,
    /// The number.
    pub value: i64,
}

impl Drop for NumberAtEnd<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        event_number(self.name, self.value);
    }
}

/// Creates an event with a number for the end of the scope.
#[inline(always)]
pub fn number_at_end(name: &CStr, value: i64) -> NumberAtEnd<'_> {
    NumberAtEnd { name, value }
}

/// Event with a text, which is sent when this is dropped.
#[derive(Debug)]
#[must_use = "the event is sent when the guard is dropped"]
pub struct TextAtEnd<'name> {
    name: &'name CStr,
    /// The text.
    pub text: &'name CStr,
}

impl Drop for TextAtEnd<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        event_text(self.name, self.text);
    }
}

/// Creates an event with a text for the end of the scope.
#[inline(always)]
pub fn text_at_end<'name>(name: &'name CStr, text: &'name CStr) -> TextAtEnd<'name> {
    TextAtEnd { name, text }
}
