//! Requirement of a build or a test.

/// Required program or file, and the Debian package that contains it.
#[derive(Clone, Copy)]
pub(crate) struct Requirement {
    /// Name of a program in `PATH`, or an absolute path.
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
}
