//! Name and version of memtrace in JSON.

use serde::Serialize;

/// The field `tool`.
#[derive(Serialize)]
pub(super) struct Tool {
    name: &'static str,
    version: &'static str,
}

impl Tool {
    /// This program.
    pub(super) const THIS: Self = Self { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") };
}
