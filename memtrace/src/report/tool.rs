//! Name and version of memtrace.

use serde::Serialize;

/// The field `tool`.
#[derive(Serialize)]
pub(super) struct Tool {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
}

impl Tool {
    /// This program.
    pub(super) const THIS: Self = Self { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") };
}
