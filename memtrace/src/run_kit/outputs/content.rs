//! Content and ownership of a report file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::fchown;

/// Writes the content of a report to its file.
pub(super) fn fill(content: impl Fn(&mut dyn Write) -> io::Result<()>, file: &File) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    content(&mut out)?;
    out.flush()?;
    give_to_user(file);
    Ok(())
}

/// Makes the user that called sudo the owner of the report.
pub(super) fn give_to_user(file: &File) {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    if let (Some(user), Some(group)) = (number("SUDO_UID"), number("SUDO_GID")) {
        // If this fails, the report belongs to root.
        let _ = fchown(file, Some(user), Some(group));
    }
}
