//! Version of the running kernel.

use crate::procfs;

/// Major and minor version of a kernel.
pub(super) type Release = (u32, u32);

/// Returns the version of the running kernel.
pub(super) fn running() -> Option<Release> {
    parse(&procfs::kernel_release()?)
}

/// Parses a release string, as in `6.1.0-30-amd64`.
pub(super) fn parse(release: &str) -> Option<Release> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}
