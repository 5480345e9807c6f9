//! Names that are formatted without an allocation.

use core::ffi::CStr;
use core::fmt;

/// Maximum size of a name in bytes, including the zero. memtrace reads no more.
const LENGTH: usize = 64;

/// A name that is formatted in place and cut after `LENGTH - 1` bytes.
pub(crate) struct Label {
    bytes: [u8; LENGTH],
    length: usize,
}

impl Label {
    pub(crate) fn new(name: fmt::Arguments<'_>) -> Self {
        let mut label = Self { bytes: [0; LENGTH], length: 0 };
        // The error only says that the name was cut.
        let _ = fmt::Write::write_fmt(&mut label, name);
        label
    }

    /// Returns the name up to its first zero.
    pub(crate) fn text(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

impl fmt::Write for Label {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = &mut self.bytes[self.length..LENGTH - 1];
        let count = text.len().min(free.len());
        free[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        if count == text.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut() {
        assert_eq!(Label::new(format_args!("user {}", 7)).text(), c"user 7");
        let long = Label::new(format_args!("{:070}", 7));
        assert_eq!(long.text().to_bytes(), [b'0'; LENGTH - 1]);
        assert_eq!(Label::new(format_args!("a\0b")).text(), c"a");
    }
}
